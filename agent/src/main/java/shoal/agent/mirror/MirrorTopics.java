package shoal.agent.mirror;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import shoal.agent.Broker;
import shoal.agent.KafkaRecords;
import shoal.agent.Members;
import shoal.agent.Patches;

/** The hook in UnifiedLog.appendAsLeader, see the package. */
public final class MirrorTopics {
    private static final String SERVER = "org.apache.kafka.server.";
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    private static final Class<?> ORIGIN = Members.type(LOG + "AppendOrigin");

    /** The method that all others of this name call. */
    private static final Method PATCHED = patched();

    private static volatile Pattern names; // null: nothing is done

    private MirrorTopics() {}

    /** 3.9 also takes the inter-broker protocol version, 4.2 and later the transaction version. */
    private static Method patched() {
        boolean hasProtocol = Broker.current().validatorHasProtocol;
        List<Class<?>> parameters = new ArrayList<>(List.of(KafkaRecords.TYPE, int.class, ORIGIN));
        if (hasProtocol) {
            parameters.add(Members.type(SERVER + "common.MetadataVersion"));
        }
        parameters.add(Members.type(hasProtocol ? "kafka.server.RequestLocal" : SERVER + "common.RequestLocal"));
        parameters.add(Members.type(LOG + "VerificationGuard"));
        List<Class<?>> withVersion = new ArrayList<>(parameters);
        withVersion.add(short.class);
        Method found = Members.method(MirrorLog.TYPE, "appendAsLeader", List.of(parameters, withVersion)::contains);
        return Members.method(MirrorLog.TYPE, "appendAsLeader", MirrorLog.INFO, found.getParameterTypes());
    }

    /** Looks up every expected member of Kafka. */
    public static List<Patches.Patch> patches() throws ClassNotFoundException {
        Patches.loadAll(
                Refusal.class,
                KafkaErrors.class,
                MirrorSet.class,
                MirrorLog.class,
                BatchRecords.class,
                Verifier.class,
                LoggedBatches.class);
        return List.of(
                new Patches.Patch(PATCHED, MirrorAdvices.Append.class),
                new Patches.Patch(Promotions.PATCHED, MirrorAdvices.NewImage.class));
    }

    /** The topics whose whole name matches, except Kafka's own; call it when the methods are patched. */
    public static void use(Pattern pattern) {
        names = pattern;
    }

    /** Kafka's LogAppendInfo; null: Kafka's own code appends these records. */
    public static Object append(Object kafkaLog, Object records, int leaderEpoch, Object origin) throws Throwable {
        MirrorLog log = new MirrorLog(kafkaLog);
        if (!isMirrorTopic(log.topic()) || !Promotions.areKnown()) {
            return null;
        }
        ByteBuffer bytes = KafkaRecords.bytes(records);
        switch (((Enum<?>) origin).name()) {
            case "CLIENT":
                return ofClient(log, bytes, leaderEpoch);
            case "COORDINATOR":
                return ofCoordinator(log, bytes);
            default:
                return null;
        }
    }

    /** Not Kafka's own (two underscores): their coordinators expect that each of their markers has an offset. */
    private static boolean isMirrorTopic(String topic) {
        return names != null && !topic.startsWith("__") && names.matcher(topic).matches();
    }

    private static Object ofClient(MirrorLog log, ByteBuffer bytes, int leaderEpoch) throws Throwable {
        try {
            MirrorSet set = MirrorSet.of(bytes);
            if (set == null) {
                return ofOrdinaryProducer(log);
            }
            Verifier.check(set, log);
            synchronized (log.lock()) {
                return ofMirror(log, set, leaderEpoch);
            }
        } catch (Refusal refusal) {
            MirrorStatus.refused();
            throw KafkaErrors.of(refusal);
        }
    }

    private static Object ofOrdinaryProducer(MirrorLog log) throws Throwable {
        if (isPromoted(log)) {
            return null;
        }
        throw Refusal.readOnly(log.topic() + " is a mirror topic: only its mirror writes to it until it is promoted"
                + " (shoal promote " + log.topic() + ")");
    }

    private static boolean isPromoted(MirrorLog log) throws Throwable {
        return Promotions.contain(log.topic(), log.topicId());
    }

    /** Under the log's lock: what comes after a probe that said promoted is refused. */
    private static Object ofMirror(MirrorLog log, MirrorSet set, int leaderEpoch) throws Throwable {
        if (isPromoted(log)) {
            throw Refusal.readOnly(log.topic() + " was promoted: it no longer takes the batches of a mirror");
        } else if (set.isProbe()) {
            return log.info(log.end(), log.end() - 1);
        }
        int next = firstNew(log, set);
        MirrorStatus.repeated(next);
        if (next == set.size()) {
            return log.info(set.base(0), set.last());
        }
        makeRoom(log, set, next, leaderEpoch);
        Object info = log.append(set.from(next, leaderEpoch), leaderEpoch);
        MirrorStatus.appended(set.size() - next);
        return MirrorLog.withOffsets(info, set.base(0), set.last());
    }

    /** The index of the first batch that is not in the log. */
    private static int firstNew(MirrorLog log, MirrorSet set) throws Throwable {
        int next = 0;
        while (next < set.size() && set.last(next) < log.end()) {
            if (set.base(next) < log.start()) {
                throw Refusal.malformed("the batch at offset " + set.base(next)
                        + " can't be compared: the log starts at " + log.start());
            } else if (!LoggedBatches.hold(log, set, next)) {
                throw Refusal.malformed("the batch at offset " + set.base(next) + " is another than the log has there:"
                        + " its source was created again or truncated, or " + log.name() + " had another writer");
            }
            next++;
        }
        return next;
    }

    /** The log ends where this batch begins, or its gap. */
    private static void makeRoom(MirrorLog log, MirrorSet set, int next, int leaderEpoch) throws Throwable {
        long end = log.end();
        long base = set.base(next);
        if (base < end) {
            throw Refusal.malformed("the log ends at " + end + ", in the middle of the batch at offset " + base);
        } else if (next == 0 && set.mayStart()) {
            if (!log.isEmpty()) {
                throw Refusal.wrongEnd("an empty log", end);
            } else if (base > end) {
                log.startAt(base);
            }
        } else if (set.expectedEnd(next) != end && !isFilled(log, set.expectedEnd(next), end)) {
            throw Refusal.wrongEnd("end " + set.expectedEnd(next), end);
        } else if (base > end && log.beginsEpoch()) {
            log.append(MirrorSet.filler(end, base - 1, leaderEpoch), leaderEpoch);
            MirrorStatus.filled();
        }
    }

    /** A filler over the gap may be in the log without the batch behind it: its leader, or its mirror, failed then. */
    private static boolean isFilled(MirrorLog log, long first, long end) throws Throwable {
        return log.start() <= first && first < end && LoggedBatches.holdFiller(log, first, end - 1);
    }

    /**
     * Markers of transactions. A producer whose batch was refused aborts, and its marker would take an offset. It is
     * acknowledged and left out, unless the log has batches of that transaction, from before this was a mirror topic.
     */
    private static Object ofCoordinator(MirrorLog log, ByteBuffer bytes) throws Throwable {
        if (!MirrorSet.isControl(bytes)) {
            return null;
        }
        synchronized (log.lock()) {
            if (isPromoted(log) || log.hasTransaction(MirrorSet.producerId(bytes))) {
                return null;
            }
            log.endVerification(MirrorSet.producerId(bytes));
            MirrorStatus.leftOut();
            return log.info(log.end(), log.end() - 1);
        }
    }
}
