package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * Idempotence of sets: UnifiedLog.analyzeAndValidateProducerState looks for batches that were written already.
 *
 * <p>As soon as it finds one it calls the whole append a repetition: nothing is written and all is acknowledged. That is right
 * for one batch, and for a set that is repeated as a whole. Of a set of which a part is new, the new part would be lost.
 *
 * <p>So a set with a known batch passes as a repetition only where all of it is seen to be written, side by side, so that the one
 * base offset of the answer is right for all: every batch is known to the producer state, or the first is and the log itself has
 * the set from there on (batches without a producer id, or more of them than the state remembers). Otherwise it is refused
 * (INVALID_RECORD: to be sent batch by batch). A topic with LogAppendTime changes the CRCs, so that only the first way is left.
 */
public final class Duplicates {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    private static final Class<?> TYPE = WrittenLog.TYPE;
    private static final Class<?> MANAGER = Members.type(LOG + "ProducerStateManager");
    private static final Class<?> ENTRY = Members.type(LOG + "ProducerStateEntry");
    private static final Class<?> METADATA = Members.type(LOG + "BatchMetadata");

    static final Method PATCHED = patched();

    private static final MethodHandle STATE = object(Members.getter(Members.field(TYPE, "producerStateManager", MANAGER)));
    private static final MethodHandle LAST_ENTRY = Members.handle(
                    Members.method(MANAGER, "lastEntry", Optional.class, long.class))
            .asType(MethodType.methodType(Optional.class, Object.class, long.class));
    private static final MethodHandle FIND = Members.handle(
                    Members.method(ENTRY, "findDuplicateBatch", Optional.class, Members.recordType("RecordBatch")))
            .asType(MethodType.methodType(Optional.class, Object.class, Object.class));
    private static final MethodHandle FIRST_OFFSET = offset("firstOffset");
    private static final MethodHandle LAST_OFFSET = offset("lastOffset");
    private static final MethodHandle REFUSAL = object(Members.handle(Members.constructor(
            Members.type("org.apache.kafka.common.InvalidRecordException"), String.class)));

    private Duplicates() {}

    /** Raises Kafka's InvalidRecordException where {@code records} is a set that was written before in part. */
    public static void check(Object log, Object records, Object origin) throws Throwable {
        RecordSet set = SetValidator.isClient(origin) ? RecordSet.of(KafkaRecords.bytes(records)) : null;
        if (set == null || !set.hasProducerIds()) {
            return;
        }
        Object[] written = written(log, set, records);
        int known = (int) Arrays.stream(written).filter(Objects::nonNull).count();
        if (known > 0 && !(known == set.size() && together(written)) && !inLog(log, written[0], records)) {
            Status.refused();
            throw (Throwable) (Object) REFUSAL.invokeExact((Object)
                    ("Of a set of " + set.size() + " batches " + known + " were written before: send them one by one"));
        }
    }

    /** The BatchMetadata of each batch, null where a batch is new or has no producer id. */
    private static Object[] written(Object log, RecordSet set, Object records) throws Throwable {
        Object[] written = new Object[set.size()];
        Iterator<?> batches = WrittenLog.batches(records);
        for (int i = 0; i < written.length; i++) {
            written[i] = written(log, set.producerId(i), batches.next());
        }
        return written;
    }

    private static boolean together(Object[] written) throws Throwable {
        for (int i = 1; i < written.length; i++) {
            if ((long) FIRST_OFFSET.invokeExact(written[i]) != (long) LAST_OFFSET.invokeExact(written[i - 1]) + 1) {
                return false;
            }
        }
        return true;
    }

    private static boolean inLog(Object log, Object first, Object records) throws Throwable {
        int size = KafkaRecords.bytes(records).limit();
        return first != null && WrittenLog.holds(log, (long) FIRST_OFFSET.invokeExact(first), records, size);
    }

    private static Object written(Object log, long producerId, Object batch) throws Throwable {
        if (producerId < 0) {
            return null;
        }
        Optional<?> entry = (Optional<?>) LAST_ENTRY.invokeExact((Object) STATE.invokeExact(log), producerId);
        return entry.isEmpty() ? null : ((Optional<?>) FIND.invokeExact((Object) entry.get(), batch)).orElse(null);
    }

    /** By its first parameters: what it returns, and whether it is also told a transaction version, has changed over time. */
    private static Method patched() {
        List<Class<?>> first = List.of(
                Members.type(LOG + "LogOffsetMetadata"),
                KafkaRecords.TYPE,
                Members.type(LOG + "AppendOrigin"),
                Members.type(LOG + "VerificationGuard"));
        return Members.method(TYPE, "analyzeAndValidateProducerState", parameters -> parameters.equals(first)
                || parameters.size() == 5 && parameters.subList(0, 4).equals(first) && parameters.get(4) == short.class);
    }

    private static MethodHandle object(MethodHandle handle) {
        return handle.asType(handle.type().generic());
    }

    private static MethodHandle offset(String name) {
        return Members.component(METADATA, name, long.class).asType(MethodType.methodType(long.class, Object.class));
    }
}
