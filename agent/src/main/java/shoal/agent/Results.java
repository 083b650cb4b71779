package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The results of the batches of one set, and the merged result. */
final class Results {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    static final Class<?> TYPE = Members.type(LOG + "LogValidator$ValidationResult");
    private static final Class<?> STATS = stats();

    private static final MethodHandle LOG_APPEND_TIME = Members.component(TYPE, "logAppendTimeMs", long.class);
    private static final MethodHandle RECORDS = Members.component(TYPE, "validatedRecords", KafkaRecords.TYPE);
    private static final MethodHandle MAX_TIMESTAMP = Members.component(TYPE, "maxTimestampMs", long.class);
    private static final MethodHandle SIZE_CHANGED = Members.component(TYPE, "messageSizeMaybeChanged", boolean.class);
    private static final MethodHandle STATS_OF = Members.component(TYPE, "recordValidationStats", STATS);
    private static final MethodHandle TEMPORARY_BYTES = Members.component(STATS, "temporaryMemoryBytes", long.class);
    private static final MethodHandle CONVERTED = Members.component(STATS, "numRecordsConverted", int.class);
    private static final MethodHandle CONVERSION_NANOS = Members.component(STATS, "conversionTimeNanos", long.class);

    private static final Class<?>[] CREATED = {long.class, KafkaRecords.TYPE, long.class, boolean.class, STATS};
    private static final Class<?>[] CREATED_WITH_OFFSET = { // 3.9.0 and 4.0.0
        long.class, KafkaRecords.TYPE, long.class, long.class, boolean.class, STATS
    };
    private static final MethodHandle NEW = Members.handle(constructor());
    private static final boolean HAS_OFFSET = NEW.type().parameterCount() == CREATED_WITH_OFFSET.length;
    private static final MethodHandle OFFSET =
            HAS_OFFSET ? Members.component(TYPE, "shallowOffsetOfMaxTimestamp", long.class) : null;
    private static final MethodHandle NEW_STATS = newStats();
    private static final MethodHandle TOO_LARGE = Members.handle(tooLarge());

    private final Object set;
    private final List<Object> results;
    private boolean inPlace = true;
    private boolean sizeChanged;
    private long size;

    /** {@code set}: the MemoryRecords of all batches. */
    Results(Object set, int batches) {
        this.set = set;
        this.results = new ArrayList<>(batches);
    }

    /** The result of the next batch, which was validated as {@code part}. */
    void add(Object part, Object result) throws Throwable {
        results.add(result);
        inPlace &= records(result) == part;
        sizeChanged |= (boolean) SIZE_CHANGED.invoke(result);
        size += KafkaRecords.bytes(records(result)).limit();
        if (size > Integer.MAX_VALUE) {
            throw (Throwable) TOO_LARGE.invoke("The record set exceeds 2 GiB when compressed with the topic's codec");
        }
    }

    /** True if every batch got its offsets in place: the set's own buffer can be appended. */
    boolean inPlace() {
        return inPlace;
    }

    Object merged() throws Throwable {
        Object newest = newest();
        Object last = results.get(results.size() - 1);
        long now = (long) LOG_APPEND_TIME.invoke(last);
        long max = (long) MAX_TIMESTAMP.invoke(newest);
        Object records = inPlace ? set : KafkaRecords.of(joined());
        if (HAS_OFFSET) {
            return NEW.invoke(now, records, max, (long) OFFSET.invoke(newest), sizeChanged, sum());
        }
        return NEW.invoke(now, records, max, sizeChanged, sum());
    }

    /** The first result with the largest timestamp. */
    private Object newest() throws Throwable {
        Object newest = results.get(0);
        for (Object result : results) {
            if ((long) MAX_TIMESTAMP.invoke(result) > (long) MAX_TIMESTAMP.invoke(newest)) {
                newest = result;
            }
        }
        return newest;
    }

    private ByteBuffer joined() throws Throwable {
        ByteBuffer joined = ByteBuffer.allocate((int) size);
        for (Object result : results) {
            joined.put(KafkaRecords.bytes(records(result)));
        }
        return joined.flip();
    }

    private Object sum() throws Throwable {
        long bytes = 0;
        int converted = 0;
        long nanos = 0;
        for (Object result : results) {
            Object stats = STATS_OF.invoke(result);
            bytes += (long) TEMPORARY_BYTES.invoke(stats);
            converted += (int) CONVERTED.invoke(stats);
            nanos += (long) CONVERSION_NANOS.invoke(stats);
        }
        return NEW_STATS.invoke(bytes, converted, nanos);
    }

    private static Object records(Object result) throws Throwable {
        return RECORDS.invoke(result);
    }

    /** The class of the statistics; 4.3 moved it to another package. */
    private static Class<?> stats() {
        Class<?> type = Arrays.stream(TYPE.getDeclaredFields())
                .filter(field -> field.getName().equals("recordValidationStats"))
                .map(field -> (Class<?>) field.getType())
                .findFirst()
                .orElseThrow(() -> new Members.Unexpected(TYPE + " has no recordValidationStats"));
        return Members.type(type.getName());
    }

    private static Constructor<?> constructor() {
        Constructor<?> constructor = Members.onlyConstructor(TYPE);
        Class<?>[] taken = constructor.getParameterTypes();
        if (!Arrays.equals(taken, CREATED) && !Arrays.equals(taken, CREATED_WITH_OFFSET)) {
            throw new Members.Unexpected("unexpected constructor: " + constructor);
        }
        return constructor;
    }

    private static MethodHandle newStats() {
        return Members.handle(Members.constructor(STATS, long.class, int.class, long.class));
    }

    private static Constructor<?> tooLarge() {
        Class<?> type = Members.type("org.apache.kafka.common.errors.RecordBatchTooLargeException");
        return Members.constructor(type, String.class);
    }
}
