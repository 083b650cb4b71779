package shoal.agent.mirror;

import java.lang.invoke.MethodHandle;
import shoal.agent.KafkaRecords;
import shoal.agent.Members;
import shoal.agent.WrittenLog;

/** What LogValidator would check of each batch, but for holes between offsets. */
final class Verifier {
    private static final MethodHandle IS_VALID =
            Members.handle(Members.method(Members.recordType("RecordBatch"), "isValid", boolean.class));

    private Verifier() {}

    /** The size of the set; each batch's size, CRC, offsets of records, and keys where the topic is compacted. */
    static void check(MirrorSet set, MirrorLog log) throws Throwable {
        int largest = log.largestBatch();
        if (set.bytes() > log.largestSet()) {
            throw Refusal.setTooLarge("a mirror's set of " + set.bytes() + " bytes, segment.bytes of the topic is "
                    + log.largestSet());
        }
        boolean isCompacted = log.isCompacted();
        for (int i = 0; i < set.size(); i++) {
            if (set.bytes(i) > largest) {
                throw Refusal.tooLarge("the batch at offset " + set.base(i) + " has " + set.bytes(i)
                        + " bytes, max.message.bytes of the topic is " + largest);
            }
            Object batch = WrittenLog.batches(KafkaRecords.of(set.batch(i))).next();
            if (!(boolean) IS_VALID.invokeExact(batch)) {
                throw Refusal.damaged("the batch at offset " + set.base(i) + " has a wrong CRC");
            }
            try (BatchRecords records = BatchRecords.withoutContent(batch)) {
                check(set, i, records, isCompacted);
            }
        }
    }

    private static void check(MirrorSet set, int index, BatchRecords records, boolean isCompacted) throws Throwable {
        int count = 0;
        long before = set.base(index) - 1;
        for (Object record = records.next(); record != null; record = records.next()) {
            long offset = BatchRecords.offset(record);
            if (offset <= before || offset > set.last(index)) {
                throw Refusal.malformed("the batch at offset " + set.base(index) + " has offsets out of order");
            }
            if (isCompacted && !BatchRecords.hasKey(record)) {
                throw Refusal.malformed("record " + offset + " has no key, and the topic is compacted");
            }
            before = offset;
            count++;
        }
        if (count == 0 && !set.isOnlyHeader(index)) { // an iterator of no records does not look behind the header
            throw Refusal.malformed("the batch at offset " + set.base(index) + " has no records, but bytes of some");
        } else if (count != set.records(index)) {
            throw Refusal.malformed("the batch at offset " + set.base(index) + " has " + count + " records, not "
                    + set.records(index));
        }
    }
}
