package shoal.agent.mirror;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import shoal.agent.Confirmation;
import shoal.agent.KafkaRecords;
import shoal.agent.Members;
import shoal.agent.WrittenLog;

/** The members of Kafka's UnifiedLog that a mirror topic needs. Between calls only its lock keeps it unchanged. */
final class MirrorLog {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    static final Class<?> TYPE = WrittenLog.TYPE;
    private static final Class<?> PARTITION = Members.type("org.apache.kafka.common.TopicPartition");
    private static final Class<?> CONFIG = Members.type(LOG + "LogConfig");
    static final Class<?> INFO = Members.type(LOG + "LogAppendInfo");
    private static final Class<?> EPOCHS =
            Members.type("org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache");
    private static final Class<?> EPOCH = Members.type(LOG + "EpochEntry");
    private static final Class<?> PRODUCER = Members.type(LOG + "ProducerStateEntry");
    /** Optional, or scala.Option where the log is written in Scala: both have get, isEmpty and a static empty. */
    private static final Class<?> OPTION = Members.method(TYPE, "topicId", List::isEmpty).getReturnType();

    private static final MethodHandle IS_EMPTY = Members.handle(Members.method(OPTION, "isEmpty", boolean.class));
    private static final MethodHandle GET = Members.handle(Members.method(OPTION, "get", Object.class));
    private static final MethodHandle NONE = Members.handle(Members.method(OPTION, "empty", OPTION));

    private static final MethodHandle LOCK = Members.getter(Members.field(TYPE, "lock", Object.class));
    private static final MethodHandle TOPIC_PARTITION =
            Members.handle(Members.method(TYPE, "topicPartition", PARTITION));
    private static final MethodHandle TOPIC = Members.handle(Members.method(PARTITION, "topic", String.class));
    private static final MethodHandle TOPIC_ID = Members.handle(Members.method(TYPE, "topicId", OPTION));
    private static final MethodHandle END = number("logEndOffset");
    private static final MethodHandle START = number("logStartOffset");
    private static final MethodHandle LOCAL_START = number("localLogStartOffset");
    private static final MethodHandle SIZE = number("size");
    private static final MethodHandle GET_CONFIG = Members.handle(Members.method(TYPE, "config", CONFIG));
    private static final MethodHandle COMPACT = Members.getter(Members.field(CONFIG, "compact", boolean.class));
    private static final MethodHandle MAX_SIZE = Members.handle(Members.method(CONFIG, "maxMessageSize", int.class));
    private static final MethodHandle SEGMENT_SIZE = Members.component(CONFIG, "segmentSize", int.class);
    private static final Class<?> SEGMENT = Members.type(LOG + "LogSegment");
    private static final MethodHandle ACTIVE = Members.handle(Members.method(TYPE, "activeSegment", SEGMENT));
    private static final MethodHandle SEGMENT_START = Members.handle(Members.method(SEGMENT, "baseOffset", long.class));
    private static final MethodHandle GET_EPOCHS = epochs();
    private static final MethodHandle LATEST = Members.handle(Members.method(EPOCHS, "latestEntry", Optional.class));
    private static final MethodHandle EPOCH_START = Members.component(EPOCH, "startOffset", long.class);
    private static final MethodHandle TRUNCATE =
            Members.handle(Members.method(TYPE, "truncateFullyAndStartAt", void.class, long.class, OPTION));
    private static final MethodHandle APPEND = append();
    private static final MethodHandle OPEN_SINCE =
            Members.handle(Members.method(PRODUCER, "currentTxnFirstOffset", OptionalLong.class));
    private static final MethodHandle INFO_OF =
            Members.handle(Members.method(INFO, "unknownLogAppendInfoWithLogStartOffset", INFO, long.class));
    private static final MethodHandle SET_FIRST = setter("setFirstOffset");
    private static final MethodHandle SET_LAST = setter("setLastOffset");

    private final Object log;

    MirrorLog(Object log) {
        this.log = log;
    }

    /** All appends, truncations and deletions hold it. */
    Object lock() throws Throwable {
        return (Object) LOCK.invokeExact(log);
    }

    String topic() throws Throwable {
        return (String) (Object) TOPIC.invokeExact((Object) TOPIC_PARTITION.invokeExact(log));
    }

    /** Topic and partition, as Kafka writes them. */
    String name() throws Throwable {
        return String.valueOf((Object) TOPIC_PARTITION.invokeExact(log));
    }

    /** Kafka's text of the topic's id; empty if it has none. */
    String topicId() throws Throwable {
        Object id = (Object) TOPIC_ID.invokeExact(log);
        return (boolean) IS_EMPTY.invokeExact(id) ? "" : String.valueOf((Object) GET.invokeExact(id));
    }

    /** With tiered storage, what is before it can't be read here. */
    long start() throws Throwable {
        return Math.max((long) START.invokeExact(log), (long) LOCAL_START.invokeExact(log));
    }

    /** The log end offset. */
    long end() throws Throwable {
        return (long) END.invokeExact(log);
    }

    boolean isEmpty() throws Throwable {
        return (long) SIZE.invokeExact(log) == 0;
    }

    boolean isCompacted() throws Throwable {
        return (boolean) COMPACT.invokeExact((Object) GET_CONFIG.invokeExact(log));
    }

    /**
     * Whether compaction may have removed records from this offset on: the active segment is never cleaned. A topic
     * that is not compacted may have been, until its cleanup.policy was changed.
     */
    boolean mayBeCleaned(long offset) throws Throwable {
        return offset < (long) SEGMENT_START.invokeExact((Object) ACTIVE.invokeExact(log));
    }

    /** max.message.bytes. */
    int largestBatch() throws Throwable {
        return (int) MAX_SIZE.invokeExact((Object) GET_CONFIG.invokeExact(log));
    }

    /** segment.bytes. */
    int largestSet() throws Throwable {
        return (int) SEGMENT_SIZE.invokeExact((Object) GET_CONFIG.invokeExact(log));
    }

    /** Whether the latest leader epoch has no batch yet: it begins where the log ends. */
    boolean beginsEpoch() throws Throwable {
        Object epochs = (Object) GET_EPOCHS.invokeExact(log);
        Optional<?> latest = (Optional<?>) (Object) LATEST.invokeExact(epochs);
        return latest.isPresent() && (long) EPOCH_START.invokeExact((Object) latest.get()) >= end();
    }

    /** Whether the log has batches of an open transaction of this producer, which need a marker. */
    boolean hasTransaction(long producerId) throws Throwable {
        Optional<?> entry = WrittenLog.lastEntry(log, producerId);
        return entry.isPresent()
                && ((OptionalLong) (Object) OPEN_SINCE.invokeExact((Object) entry.get())).isPresent();
    }

    /** What the coordinator has confirmed of this producer's transaction counts no longer (KIP-890). */
    void endVerification(long producerId) throws Throwable {
        Confirmation.clear(WrittenLog.producerState(log), producerId);
    }

    /** Batches from the one of {@code offset} on: at least one, and more up to {@code size} bytes. */
    Iterator<?> read(long offset, int size) throws Throwable {
        return WrittenLog.read(log, offset, size);
    }

    /** An empty log begins at another offset, not below its end. */
    void startAt(long offset) throws Throwable {
        TRUNCATE.invokeExact(log, offset, (Object) NONE.invokeExact());
    }

    /** Append batches as they are; -> Kafka's LogAppendInfo. */
    Object append(ByteBuffer batches, int leaderEpoch) throws Throwable {
        return (Object) APPEND.invokeExact(log, KafkaRecords.of(batches), leaderEpoch);
    }

    /** A LogAppendInfo as if these offsets were appended; `last` below `first`: nothing. */
    Object info(long first, long last) throws Throwable {
        return withOffsets((Object) INFO_OF.invokeExact(start()), first, last);
    }

    static Object withOffsets(Object info, long first, long last) throws Throwable {
        SET_FIRST.invokeExact(info, first);
        SET_LAST.invokeExact(info, last);
        return info;
    }

    /** appendAsFollower takes no epoch in 3.9.0: it trusts the batches. */
    private static MethodHandle append() {
        List<Class<?>> records = List.of(KafkaRecords.TYPE);
        List<Class<?>> withEpoch = List.of(KafkaRecords.TYPE, int.class);
        Method method = Members.method(TYPE, "appendAsFollower", List.of(records, withEpoch)::contains);
        Members.method(TYPE, "appendAsFollower", INFO, method.getParameterTypes());
        MethodHandle handle = Members.handle(method);
        return method.getParameterCount() == 1 ? MethodHandles.dropArguments(handle, 2, int.class) : handle;
    }

    /** An Option in 3.9, where very old formats had no cache. */
    private static MethodHandle epochs() {
        Method method = Members.method(TYPE, "leaderEpochCache", List::isEmpty);
        MethodHandle handle = Members.handle(method);
        if (method.getReturnType() == EPOCHS) {
            return handle;
        }
        Members.method(TYPE, "leaderEpochCache", OPTION);
        return MethodHandles.filterReturnValue(handle, GET);
    }

    private static MethodHandle number(String name) {
        return Members.handle(Members.method(TYPE, name, long.class));
    }

    private static MethodHandle setter(String name) {
        return Members.handle(Members.method(INFO, name, void.class, long.class));
    }
}
