package shoal.agent.mirror;

import java.lang.invoke.MethodHandle;
import java.util.Iterator;
import shoal.agent.KafkaRecords;
import shoal.agent.Members;
import shoal.agent.WrittenLog;

/**
 * Whether the log has a batch that is sent again. An equal offset proves nothing: the source may have been created
 * again, or truncated.
 *
 * <p>The same bytes are the usual case. A log that is compacted, or was, may have fewer records by now, and a filler
 * may have been appended in another size: there, every record that the log has at the batch's offsets must be in the
 * batch, and equal.
 */
final class LoggedBatches {
    private static final Class<?> BATCH = Members.recordType("RecordBatch");
    private static final MethodHandle BASE = ofBatch("baseOffset", long.class);
    private static final MethodHandle LAST = ofBatch("lastOffset", long.class);
    private static final MethodHandle COUNT = ofBatch("countOrNull", Integer.class);
    private static final MethodHandle CONTROL = ofBatch("isControlBatch", boolean.class);

    private LoggedBatches() {}

    /** {@code index}: of a batch that is wholly below the log's end, and not below its start. */
    static boolean hold(MirrorLog log, MirrorSet set, int index) throws Throwable {
        Object batch = WrittenLog.batches(KafkaRecords.of(set.batch(index))).next();
        Iterator<?> logged = log.read(set.base(index), set.bytes(index));
        if (logged.hasNext() && sameAt(set.base(index), logged.next(), batch)) {
            return true;
        }
        return (log.mayBeCleaned(set.base(index)) || set.records(index) == 0) && hold(log, set, index, batch);
    }

    /** Whether one filler is all that the log has at these offsets. */
    static boolean holdFiller(MirrorLog log, long first, long last) throws Throwable {
        Iterator<?> batches = log.read(first, 1);
        Object logged = batches.hasNext() ? batches.next() : null;
        return logged != null
                && (long) BASE.invokeExact(logged) == first
                && (long) LAST.invokeExact(logged) == last
                && Integer.valueOf(0).equals((Object) COUNT.invokeExact(logged));
    }

    private static boolean sameAt(long base, Object logged, Object batch) throws Throwable {
        return (long) BASE.invokeExact(logged) == base && WrittenLog.same(logged, batch);
    }

    private static boolean hold(MirrorLog log, MirrorSet set, int index, Object batch) throws Throwable {
        try (BatchRecords ours = BatchRecords.of(batch)) {
            for (long at = set.base(index); at <= set.last(index); ) {
                Iterator<?> batches = log.read(at, set.bytes(index));
                if (!batches.hasNext()) {
                    return true;
                }
                while (batches.hasNext() && at <= set.last(index)) {
                    Object logged = batches.next();
                    if (!areAmong(ours, logged, at, set.last(index))) {
                        return false;
                    }
                    at = Math.max(at, (long) LAST.invokeExact(logged)) + 1;
                }
            }
        }
        return true;
    }

    /** Whether a logged batch's records at these offsets are among ours, which are read on from where they were. */
    private static boolean areAmong(BatchRecords ours, Object logged, long first, long last) throws Throwable {
        try (BatchRecords theirs = BatchRecords.of(logged)) {
            for (Object their = theirs.next(); their != null; their = theirs.next()) {
                long offset = BatchRecords.offset(their);
                if (first <= offset && offset <= last) {
                    Object our = ours.at(offset);
                    if (our == null || (boolean) CONTROL.invokeExact(logged) || !BatchRecords.equal(our, their)) {
                        return false;
                    }
                }
            }
        }
        return true;
    }

    private static MethodHandle ofBatch(String name, Class<?> type) {
        return Members.handle(Members.method(BATCH, name, type));
    }
}
