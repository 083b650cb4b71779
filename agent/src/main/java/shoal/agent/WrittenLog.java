package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.util.Collections;
import java.util.Iterator;
import java.util.Optional;

/** What a partition's log has: batches that may already be written, and what it remembers of producers. */
public final class WrittenLog {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    public static final Class<?> TYPE = Members.type(Broker.current().log);
    private static final Class<?> FETCHED = Members.type(LOG + "FetchDataInfo");
    private static final Class<?> ISOLATION = Members.type(Broker.current().fetchIsolation);
    private static final Class<?> RECORDS = Members.recordType("Records");
    private static final Class<?> BATCH = Members.recordType("RecordBatch");
    public static final Class<?> PRODUCER_STATE = Members.type(LOG + "ProducerStateManager");
    private static final Class<?> OUT_OF_RANGE =
            Members.type("org.apache.kafka.common.errors.OffsetOutOfRangeException");

    private static final MethodHandle READ = Members.handle(
            Members.method(TYPE, "read", FETCHED, long.class, int.class, ISOLATION, boolean.class));
    private static final MethodHandle TO_THE_END = Members.getter(Members.field(ISOLATION, "LOG_END", ISOLATION));
    private static final MethodHandle READ_RECORDS = Members.getter(Members.field(FETCHED, "records", RECORDS));
    private static final MethodHandle BATCHES = Members.handle(Members.method(RECORDS, "batches", Iterable.class));
    private static final MethodHandle STATE =
            Members.getter(Members.field(TYPE, "producerStateManager", PRODUCER_STATE));
    private static final MethodHandle LAST_ENTRY =
            Members.handle(Members.method(PRODUCER_STATE, "lastEntry", Optional.class, long.class));
    private static final MethodHandle BASE_OFFSET = ofBatch("baseOffset", long.class);
    private static final MethodHandle CHECKSUM = ofBatch("checksum", long.class);
    private static final MethodHandle SIZE = ofBatch("sizeInBytes", int.class);

    private WrittenLog() {}

    /** The batches of a MemoryRecords, or of records read from a log. */
    public static Iterator<?> batches(Object records) throws Throwable {
        return ((Iterable<?>) (Object) BATCHES.invokeExact(records)).iterator();
    }

    /**
     * Whether the log has these batches contiguously from {@code offset} on, by size, CRC (which does not cover
     * offsets) and distance of offsets. Also false if they can no longer be read.
     */
    static boolean holds(Object log, long offset, Object records, int size) throws Throwable {
        Iterator<?> theirs = read(log, offset, size);
        Iterator<?> ours = batches(records);
        long distance = 0;
        for (boolean first = true; ours.hasNext(); first = false) {
            Object our = ours.next();
            Object their = theirs.hasNext() ? theirs.next() : null;
            if (their == null || !same(our, their)) {
                return false;
            }
            long apart = (long) BASE_OFFSET.invokeExact(our) - (long) BASE_OFFSET.invokeExact(their);
            if (!first && apart != distance) {
                return false;
            }
            distance = apart;
        }
        return true;
    }

    /** The batches in the log from the one of {@code offset} on: at least one, and more up to {@code size} bytes. */
    public static Iterator<?> read(Object log, long offset, int size) throws Throwable {
        try {
            Object isolation = (Object) TO_THE_END.invokeExact();
            return batches(
                    (Object) READ_RECORDS.invokeExact((Object) READ.invokeExact(log, offset, size, isolation, true)));
        } catch (RuntimeException e) {
            if (OUT_OF_RANGE.isInstance(e)) { // deleted meanwhile
                return Collections.emptyIterator();
            }
            throw e;
        }
    }

    /** Kafka's ProducerStateManager of a log; the log's lock guards it. */
    public static Object producerState(Object log) throws Throwable {
        return (Object) STATE.invokeExact(log);
    }

    /** The ProducerStateEntry of a producer id. */
    public static Optional<?> lastEntry(Object log, long producerId) throws Throwable {
        return (Optional<?>) (Object) LAST_ENTRY.invokeExact(producerState(log), producerId);
    }

    /** Whether two batches are equal, but for their offsets and leader epochs. */
    public static boolean same(Object one, Object other) throws Throwable {
        return (int) SIZE.invokeExact(one) == (int) SIZE.invokeExact(other)
                && (long) CHECKSUM.invokeExact(one) == (long) CHECKSUM.invokeExact(other);
    }

    private static MethodHandle ofBatch(String name, Class<?> type) {
        return Members.handle(Members.method(BATCH, name, type));
    }
}
