package shoal.agent.mirror;

import static shoal.agent.BatchLayout.ATTRIBUTES;
import static shoal.agent.BatchLayout.BASE_TIMESTAMP;
import static shoal.agent.BatchLayout.CODEC;
import static shoal.agent.BatchLayout.CONTROL;
import static shoal.agent.BatchLayout.COUNT;
import static shoal.agent.BatchLayout.CRC;
import static shoal.agent.BatchLayout.HEADER;
import static shoal.agent.BatchLayout.LAST_CODEC;
import static shoal.agent.BatchLayout.LAST_OFFSET_DELTA;
import static shoal.agent.BatchLayout.LEADER_EPOCH;
import static shoal.agent.BatchLayout.LENGTH;
import static shoal.agent.BatchLayout.LOG_OVERHEAD;
import static shoal.agent.BatchLayout.MAGIC;
import static shoal.agent.BatchLayout.MAX_TIMESTAMP;
import static shoal.agent.BatchLayout.PRODUCER_ID;
import static shoal.agent.BatchLayout.TRANSACTIONAL;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.zip.CRC32C;

/**
 * The batches of a set of which at least one has a flag, see the package. All have one, are whole batches of magic 2 in
 * ascending order, and each says where the one before it ends: else {@link Refusal}.
 */
final class MirrorSet {
    /** The flag of a gap of 0; smaller ones have larger gaps. Clients send -1 (Java) or 0 (librdkafka). */
    private static final int NO_GAP = -2;
    /** The flag of a batch with which an empty log may begin, at any offset. */
    private static final int START = Integer.MIN_VALUE;
    /** The flag of a batch that is never appended: its answer says where the log ends. */
    private static final int PROBE = Integer.MIN_VALUE + 1;

    private final ByteBuffer bytes;
    private final int[] starts; // of the batches, and the end of the last

    private MirrorSet(ByteBuffer bytes, int[] starts) {
        this.bytes = bytes;
        this.starts = starts;
    }

    /** Whether the first batch is a control batch, as coordinators append them. */
    static boolean isControl(ByteBuffer bytes) {
        return bytes.limit() >= HEADER && bytes.get(MAGIC) == 2 && (bytes.getShort(ATTRIBUTES) & CONTROL) != 0;
    }

    /** The producer id of the first batch, of at least magic 2. */
    static long producerId(ByteBuffer bytes) {
        return bytes.getLong(PRODUCER_ID);
    }

    /**
     * The set in {@code bytes} (big-endian, from 0 to the limit); null if the first batch has no flag.
     *
     * @throws Refusal if flagged batches are not as they must be
     */
    static MirrorSet of(ByteBuffer bytes) throws Refusal {
        if (bytes.limit() < HEADER || bytes.get(MAGIC) != 2 || bytes.getInt(LEADER_EPOCH) > NO_GAP) {
            return null;
        }
        int[] starts = new int[8];
        int count = 0;
        int at = 0;
        while (at < bytes.limit()) {
            starts = count + 1 == starts.length ? Arrays.copyOf(starts, 2 * starts.length) : starts;
            starts[count++] = at;
            at = end(bytes, at);
        }
        starts[count] = at;
        MirrorSet set = new MirrorSet(bytes, Arrays.copyOf(starts, count + 1));
        set.check();
        return set;
    }

    private static int end(ByteBuffer bytes, int at) throws Refusal {
        long left = bytes.limit() - (long) at;
        long size = left < HEADER ? -1 : (long) LOG_OVERHEAD + bytes.getInt(at + LENGTH);
        if (size < HEADER || size > left) {
            throw Refusal.malformed("a batch of a mirror's set is cut off");
        }
        return (int) (at + size);
    }

    private void check() throws Refusal {
        for (int i = 0; i < size(); i++) {
            int attributes = bytes.getShort(starts[i] + ATTRIBUTES);
            if (bytes.get(starts[i] + MAGIC) != 2 || flag(i) > NO_GAP) {
                throw Refusal.malformed("only some batches of a set are a mirror's");
            } else if (flag(i) <= PROBE && size() > 1 && !(i == 0 && flag(i) == START)) {
                throw Refusal.malformed("a probe, or the start of a log, in the middle of a mirror's set");
            } else if (flag(i) == PROBE && records(i) != 0) {
                throw Refusal.malformed("a probe with records");
            } else if ((attributes & (TRANSACTIONAL | CONTROL)) != 0 || bytes.getLong(starts[i] + PRODUCER_ID) != -1) {
                throw Refusal.malformed("a mirror's batch has a producer id, or is of a transaction");
            } else if ((attributes & CODEC) > LAST_CODEC || records(i) < 0 || !isInOrder(i)) {
                throw Refusal.malformed("a mirror's batch at offset " + base(i) + " has impossible fields");
            }
        }
        if (last() - base(0) > Integer.MAX_VALUE) { // a segment's offsets are relative
            throw Refusal.malformed("a mirror's set goes over more than 2^31 offsets: send it in several");
        }
    }

    private boolean isInOrder(int index) {
        long base = base(index);
        int delta = bytes.getInt(starts[index] + LAST_OFFSET_DELTA);
        long end = base + delta + 1; // below 0: beyond the greatest offset
        boolean isSane = base >= 0 && delta >= 0 && end > 0 && records(index) <= (long) delta + 1;
        return isSane && (flag(index) <= PROBE || expectedEnd(index) >= 0)
                && (index == 0 || expectedEnd(index) == last(index - 1) + 1);
    }

    int size() {
        return starts.length - 1;
    }

    boolean isProbe() {
        return flag(0) == PROBE;
    }

    /** Whether the first batch may begin an empty log. */
    boolean mayStart() {
        return flag(0) == START;
    }

    /** Where the log must end for this batch to be appended; not of a start or a probe. */
    long expectedEnd(int index) {
        return base(index) - ((long) NO_GAP - flag(index));
    }

    long base(int index) {
        return bytes.getLong(starts[index]);
    }

    long last(int index) {
        return base(index) + bytes.getInt(starts[index] + LAST_OFFSET_DELTA);
    }

    long last() {
        return last(size() - 1);
    }

    /** The number of records that the header says; 0: a filler. */
    int records(int index) {
        return bytes.getInt(starts[index] + COUNT);
    }

    int bytes() {
        return bytes.limit();
    }

    int bytes(int index) {
        return starts[index + 1] - starts[index];
    }

    boolean isOnlyHeader(int index) {
        return bytes(index) == HEADER;
    }

    /** One batch; writing to it writes to the set. */
    ByteBuffer batch(int index) {
        return slice(starts[index], starts[index + 1]);
    }

    /** The batches from {@code index} on, now of this leader's epoch. */
    ByteBuffer from(int index, int leaderEpoch) {
        for (int i = index; i < size(); i++) {
            bytes.putInt(starts[i] + LEADER_EPOCH, leaderEpoch);
        }
        return slice(starts[index], bytes.limit());
    }

    private ByteBuffer slice(int start, int end) {
        ByteBuffer part = bytes.duplicate();
        part.limit(end).position(start);
        return part.slice();
    }

    private int flag(int index) {
        return bytes.getInt(starts[index] + LEADER_EPOCH);
    }

    /** A batch without records over the offsets {@code first} to {@code last}, at most 2^31 of them. */
    static ByteBuffer filler(long first, long last, int leaderEpoch) {
        ByteBuffer batch = ByteBuffer.allocate(HEADER);
        batch.putLong(first).putInt(HEADER - LOG_OVERHEAD).putInt(leaderEpoch).put((byte) 2).putInt(0);
        batch.putShort((short) 0).putInt((int) (last - first));
        batch.putLong(BASE_TIMESTAMP, -1).putLong(MAX_TIMESTAMP, -1).putLong(PRODUCER_ID, -1);
        batch.putShort(PRODUCER_ID + 8, (short) -1).putInt(PRODUCER_ID + 10, -1).putInt(COUNT, 0);
        CRC32C crc = new CRC32C();
        crc.update(batch.array(), ATTRIBUTES, HEADER - ATTRIBUTES);
        batch.putInt(CRC, (int) crc.getValue());
        batch.rewind();
        return batch;
    }
}
