package shoal.agent.mirror;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import javax.management.JMException;
import shoal.agent.PatchReport;

/** The state and the counters of mirror topics, for JMX. */
public final class MirrorStatus extends PatchReport implements MirrorTopicsMXBean {
    /** The system property with a regular expression; without it nothing of this package is used. */
    public static final String PROPERTY = "shoal.mirror.topics";

    private static final LongAdder BATCHES = new LongAdder();
    private static final LongAdder REPEATED = new LongAdder();
    private static final LongAdder REFUSED = new LongAdder();
    private static final LongAdder FILLERS = new LongAdder();
    private static final LongAdder MARKERS = new LongAdder();

    private final String topics;

    private MirrorStatus(String topics, List<String> patched, String reason) {
        super(patched, reason);
        this.topics = topics;
    }

    public static MirrorStatus on(String topics, List<String> patched) {
        return new MirrorStatus(topics, patched, "");
    }

    public static MirrorStatus off(String topics, String reason) {
        return new MirrorStatus(topics, List.of(), reason);
    }

    public void register() throws JMException {
        register("MirrorTopics");
    }

    static void appended(int batches) {
        BATCHES.add(batches);
    }

    static void repeated(int batches) {
        REPEATED.add(batches);
    }

    static void refused() {
        REFUSED.increment();
    }

    static void filled() {
        FILLERS.increment();
    }

    static void leftOut() {
        MARKERS.increment();
    }

    @Override
    public String getTopics() {
        return topics;
    }

    @Override
    public Map<String, String> getPromoted() {
        return isActive() ? Promotions.all() : Map.of();
    }

    @Override
    public long getBatches() {
        return BATCHES.sum();
    }

    @Override
    public long getRepeatedBatches() {
        return REPEATED.sum();
    }

    @Override
    public long getRefused() {
        return REFUSED.sum();
    }

    @Override
    public long getFillers() {
        return FILLERS.sum();
    }

    @Override
    public long getMarkersLeftOut() {
        return MARKERS.sum();
    }
}
