package shoal.agent;

import java.util.List;
import java.util.concurrent.atomic.LongAdder;
import javax.management.JMException;

/** The agent's state and counters, for JMX. */
final class Status extends PatchReport implements MultiBatchAgentMXBean {
    private static final LongAdder SETS = new LongAdder();
    private static final LongAdder BATCHES = new LongAdder();
    private static final LongAdder IN_PLACE = new LongAdder();
    private static final LongAdder REFUSED = new LongAdder();

    private final String kafka;
    Status(String kafka, List<String> patched, String reason) {
        super(patched, reason);
        this.kafka = kafka;
    }

    void register() throws JMException {
        register("MultiBatchAgent");
    }

    static void validated(int batches, boolean inPlace) {
        SETS.increment();
        BATCHES.add(batches);
        if (inPlace) {
            IN_PLACE.increment();
        }
    }

    static void refused() {
        REFUSED.increment();
    }

    static String version() {
        String version = Status.class.getPackage().getImplementationVersion();
        return version == null ? "unknown" : version;
    }

    @Override
    public String getVersion() {
        return version();
    }

    @Override
    public String getKafkaVersion() {
        return kafka;
    }

    @Override
    public long getSets() {
        return SETS.sum();
    }

    @Override
    public long getBatches() {
        return BATCHES.sum();
    }

    @Override
    public long getSetsInPlace() {
        return IN_PLACE.sum();
    }

    @Override
    public long getSetsRefusedAsRepeated() {
        return REFUSED.sum();
    }
}
