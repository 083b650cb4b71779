package shoal.agent;

import static shoal.agent.BatchLayout.ATTRIBUTES;
import static shoal.agent.BatchLayout.BASE_SEQUENCE;
import static shoal.agent.BatchLayout.CODEC;
import static shoal.agent.BatchLayout.CONTROL;
import static shoal.agent.BatchLayout.HEADER;
import static shoal.agent.BatchLayout.LAST_CODEC;
import static shoal.agent.BatchLayout.LAST_OFFSET_DELTA;
import static shoal.agent.BatchLayout.LENGTH;
import static shoal.agent.BatchLayout.LOG_OVERHEAD;
import static shoal.agent.BatchLayout.MAGIC;
import static shoal.agent.BatchLayout.PRODUCER_EPOCH;
import static shoal.agent.BatchLayout.PRODUCER_ID;
import static shoal.agent.BatchLayout.TRANSACTIONAL;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * The batches of a record set that the agent handles: two or more complete batches of magic 2 that fill the set,
 * without control batches. Either none is transactional, or all are and have one producer. Sequences of a producer id
 * are contiguous.
 *
 * <p>Only one transaction, because the broker decides by the first batch whether a request is transactional and needs a
 * transactional id (RequestUtils). No gaps in sequences, because the broker accepts any sequence of an unknown producer
 * id, in every batch of a set, and would append a batch that is twice in the set twice (ProducerAppendInfo).
 */
final class RecordSet {
    private final ByteBuffer bytes;
    private final int[] starts;

    private RecordSet(ByteBuffer bytes, int[] starts) {
        this.bytes = bytes;
        this.starts = starts;
    }

    /** The set in {@code bytes} (big-endian, from 0 to the limit); null if Kafka's own code handles it. */
    static RecordSet of(ByteBuffer bytes) {
        long first = end(bytes, 0);
        if (first < 0 || first >= bytes.limit() || bytes.position() != 0) {
            return null; // one batch, as ordinary clients send
        }
        int[] starts = new int[8];
        int count = 0;
        for (int at = 0; at < bytes.limit(); at = (int) end(bytes, at)) {
            if (!fits(bytes, at)) {
                return null;
            }
            starts = count == starts.length ? Arrays.copyOf(starts, 2 * count) : starts;
            starts[count++] = at;
        }
        RecordSet set = new RecordSet(bytes, Arrays.copyOf(starts, count));
        return set.isInSequence() ? set : null;
    }

    int size() {
        return starts.length;
    }

    /** The bytes of one batch; writing to them writes to the set. */
    ByteBuffer batch(int index) {
        int end = index + 1 < starts.length ? starts[index + 1] : bytes.limit();
        ByteBuffer part = bytes.duplicate();
        part.limit(end).position(starts[index]);
        return part.slice();
    }

    /** Kafka's id of the codec of one batch: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. */
    int codec(int index) {
        return bytes.getShort(starts[index] + ATTRIBUTES) & CODEC;
    }

    long producerId(int index) {
        return bytes.getLong(starts[index] + PRODUCER_ID);
    }

    boolean hasProducerIds() {
        for (int i = 0; i < starts.length; i++) {
            if (producerId(i) >= 0) {
                return true;
            }
        }
        return false;
    }

    /** Whether all batches are in one transaction; then they have one producer id and epoch. */
    boolean isTransactional() {
        return (attributes(bytes, 0) & TRANSACTIONAL) != 0;
    }

    /** Whether the batches of each producer id have one epoch and contiguous sequences. */
    private boolean isInSequence() {
        Map<Long, Integer> last = null;
        for (int i = 0; i < starts.length; i++) {
            if (producerId(i) >= 0) {
                last = last == null ? new HashMap<>() : last;
                Integer before = last.put(producerId(i), i);
                if (before != null && !follows(before, i)) {
                    return false;
                }
            }
        }
        return true;
    }

    private boolean follows(int before, int index) {
        int records = bytes.getInt(starts[before] + LAST_OFFSET_DELTA) + 1;
        int next = (bytes.getInt(starts[before] + BASE_SEQUENCE) + records) & Integer.MAX_VALUE; // wraps to 0
        return bytes.getInt(starts[index] + BASE_SEQUENCE) == next
                && bytes.getShort(starts[index] + PRODUCER_EPOCH) == bytes.getShort(starts[before] + PRODUCER_EPOCH);
    }

    private static boolean fits(ByteBuffer bytes, int at) {
        long end = end(bytes, at);
        return end - at >= HEADER
                && end <= bytes.limit()
                && bytes.get(at + MAGIC) == 2
                && (attributes(bytes, at) & CONTROL) == 0
                && (attributes(bytes, at) & CODEC) <= LAST_CODEC
                && sameTransaction(bytes, at);
    }

    private static boolean sameTransaction(ByteBuffer bytes, int at) {
        int transactional = attributes(bytes, at) & TRANSACTIONAL;
        return transactional == (attributes(bytes, 0) & TRANSACTIONAL)
                && (transactional == 0
                        || bytes.getLong(at + PRODUCER_ID) == bytes.getLong(PRODUCER_ID)
                                && bytes.getShort(at + PRODUCER_EPOCH) == bytes.getShort(PRODUCER_EPOCH));
    }

    private static int attributes(ByteBuffer bytes, int at) {
        return bytes.getShort(at + ATTRIBUTES);
    }

    /** Where the batch that starts at {@code at} says it ends; -1 where no length can be read. */
    private static long end(ByteBuffer bytes, int at) {
        if (bytes.limit() - at < LOG_OVERHEAD) {
            return -1;
        }
        return (long) at + LOG_OVERHEAD + bytes.getInt(at + LENGTH);
    }
}
