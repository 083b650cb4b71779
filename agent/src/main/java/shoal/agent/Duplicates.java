package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * Idempotence of sets: UnifiedLog.analyzeAndValidateProducerState looks for batches that are already written.
 *
 * <p>If it finds one, it treats the whole append as a duplicate: nothing is written and everything is acknowledged.
 * That is right for one batch, and for a whole set that is sent again. If only a part of the set was written, the rest
 * would be lost.
 *
 * <p>So a set with a written batch is accepted as a duplicate only if all of it was written contiguously, because the
 * answer has one base offset: either the producer state has every batch, or it has the first one and the log has the
 * set from there on (if batches have no producer id, or the state no longer remembers them). Otherwise the set is
 * refused (INVALID_RECORD: send it batch by batch). LogAppendTime changes the CRCs, so such a topic needs the first
 * case.
 */
public final class Duplicates {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    private static final Class<?> TYPE = WrittenLog.TYPE;
    private static final Class<?> ENTRY = Members.type(LOG + "ProducerStateEntry");
    private static final Class<?> METADATA = Members.type(LOG + "BatchMetadata");

    static final Method PATCHED = patched();

    private static final MethodHandle FIND = Members.handle(
            Members.method(ENTRY, "findDuplicateBatch", Optional.class, Members.recordType("RecordBatch")));
    private static final MethodHandle FIRST_OFFSET = offset("firstOffset");
    private static final MethodHandle LAST_OFFSET = offset("lastOffset");
    private static final MethodHandle REFUSAL = Members.handle(
            Members.constructor(Members.type("org.apache.kafka.common.InvalidRecordException"), String.class));

    private Duplicates() {}

    /** Throws Kafka's InvalidRecordException if {@code records} is a set of which only a part was written before. */
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
                    (known + " of " + set.size() + " batches of a set were written before: send them one by one"));
        }
    }

    /** The BatchMetadata of each batch; null for a batch that is new or has no producer id. */
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
        Optional<?> entry = WrittenLog.lastEntry(log, producerId);
        return entry.isEmpty() ? null : ((Optional<?>) FIND.invoke((Object) entry.get(), batch)).orElse(null);
    }

    /**
     * Found by its first parameters: its result, and a fifth parameter (transaction version), differ between versions.
     */
    private static Method patched() {
        List<Class<?>> first = List.of(
                Members.type(LOG + "LogOffsetMetadata"),
                KafkaRecords.TYPE,
                Members.type(LOG + "AppendOrigin"),
                Members.type(LOG + "VerificationGuard"));
        List<Class<?>> all = new ArrayList<>(first);
        all.add(short.class);
        return Members.method(TYPE, "analyzeAndValidateProducerState", List.of(first, all)::contains);
    }

    private static MethodHandle offset(String name) {
        return Members.component(METADATA, name, long.class);
    }
}
