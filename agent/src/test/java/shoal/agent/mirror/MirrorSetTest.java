package shoal.agent.mirror;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Random;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

class MirrorSetTest {
    private static final int START = Integer.MIN_VALUE;
    private static final int PROBE = Integer.MIN_VALUE + 1;

    /** A header and 9 bytes; these tests read no records or CRCs. */
    private static ByteBuffer batch(long base, int lastDelta, int count, int flag) {
        ByteBuffer batch = ByteBuffer.allocate(70);
        batch.putLong(0, base).putInt(8, 58).putInt(12, flag).put(16, (byte) 2);
        batch.putInt(23, lastDelta).putLong(43, -1).putInt(57, count);
        return batch;
    }

    private static ByteBuffer set(ByteBuffer... batches) {
        ByteBuffer set = ByteBuffer.allocate(70 * batches.length);
        for (ByteBuffer batch : batches) {
            set.put(batch.duplicate());
        }
        return set.flip();
    }

    private static void refused(ByteBuffer... batches) {
        assertThrows(Refusal.class, () -> MirrorSet.of(set(batches)));
    }

    private static void refused(Consumer<ByteBuffer> change) {
        ByteBuffer bad = batch(10, 1, 2, -2);
        change.accept(bad);
        refused(bad);
        refused(batch(8, 1, 2, -2), bad);
    }

    @Test
    void batchesSayWhereTheLogMustEnd() throws Exception {
        MirrorSet set = MirrorSet.of(set(batch(5, 2, 1, -4), batch(8, 0, 1, -2), batch(19, 4, 0, -12)));
        assertEquals(3, set.size());
        assertEquals(3, set.expectedEnd(0));
        assertEquals(8, set.expectedEnd(1));
        assertEquals(9, set.expectedEnd(2));
        assertEquals(23, set.last());
        assertEquals(70, set.bytes(1));
        assertFalse(set.isProbe());
        assertFalse(set.mayStart());
    }

    @Test
    void whatIsLeftIsOfTheLeadersEpoch() throws Exception {
        MirrorSet set = MirrorSet.of(set(batch(5, 0, 1, -2), batch(6, 0, 1, -2), batch(7, 0, 1, -2)));
        ByteBuffer left = set.from(1, 12);
        assertEquals(140, left.limit());
        assertEquals(6, left.getLong(0));
        assertEquals(12, left.getInt(12));
        assertEquals(12, left.getInt(70 + 12));
    }

    @Test
    void ordinaryBatchesAreNoSetOfAMirror() throws Exception {
        assertNull(MirrorSet.of(set(batch(0, 0, 1, -1))));
        assertNull(MirrorSet.of(set(batch(0, 0, 1, 0))));
        assertNull(MirrorSet.of(ByteBuffer.allocate(0)));
        assertNull(MirrorSet.of(ByteBuffer.allocate(60)));
        ByteBuffer old = batch(0, 0, 1, -2);
        old.put(16, (byte) 1);
        assertNull(MirrorSet.of(old));
    }

    @Test
    void startAndProbe() throws Exception {
        assertTrue(MirrorSet.of(batch(5_000_000_000L, 0, 1, START)).mayStart());
        assertTrue(MirrorSet.of(set(batch(5, 0, 1, START), batch(6, 0, 1, -2))).mayStart());
        assertTrue(MirrorSet.of(batch(1, 0, 0, PROBE)).isProbe());
        refused(batch(1, 0, 1, PROBE));
        refused(batch(1, 0, 0, PROBE), batch(2, 0, 1, -2));
        refused(batch(1, 0, 1, -2), batch(2, 0, 0, PROBE));
        refused(batch(1, 0, 1, -2), batch(2, 0, 1, START));
    }

    @Test
    void refusals() {
        refused(batch -> batch.putInt(8, 59)); // cut off
        refused(batch -> batch.putInt(8, 40)); // shorter than a header
        refused(batch -> batch.putInt(8, -1));
        refused(batch -> batch.putInt(8, Integer.MAX_VALUE));
        refused(batch -> batch.putShort(21, (short) 0x10)); // transactional
        refused(batch -> batch.putShort(21, (short) 0x20)); // control
        refused(batch -> batch.putShort(21, (short) 5)); // codec
        refused(batch -> batch.putLong(43, 7));
        refused(batch -> batch.putInt(23, -1));
        refused(batch -> batch.putInt(57, -1));
        refused(batch -> batch.putInt(57, 3)); // more records than offsets
        refused(batch -> batch.putLong(0, -1));
        refused(batch -> batch.putLong(0, Long.MAX_VALUE));
        refused(batch -> batch.putLong(0, Long.MAX_VALUE - 1)); // no offset is left for the end
        ByteBuffer old = batch(1, 0, 1, -2);
        old.put(16, (byte) 1);
        refused(batch(0, 0, 1, -2), old);
        refused(batch(0, 0, 1, -2), batch(1, 0, 1, -1)); // no flag
        refused(batch(0, 0, 1, -2), batch(2, 0, 1, -2)); // a hole that it does not say
        refused(batch(0, 0, 1, -2), batch(0, 0, 1, -2)); // twice
        refused(batch(3, 0, 1, -2), batch(1, 0, 1, -2)); // backwards
        refused(batch(3, 0, 1, -6)); // expects an end below 0
        refused(batch(0, 0, 1, -2), batch(Integer.MAX_VALUE, 9, 1, -2 - (Integer.MAX_VALUE - 1)));
    }

    @Test
    void anyBytesAreASetOrARefusal() throws Exception {
        Random random = new Random(7);
        int sets = 0;
        for (int i = 0; i < 100_000; i++) {
            ByteBuffer bytes = set(batch(5, 2, 1, -4), batch(8, 0, 1, -2), batch(19, 4, 0, -12));
            for (int change = random.nextInt(4); change > 0; change--) {
                bytes.put(random.nextInt(bytes.limit()), (byte) random.nextInt());
            }
            bytes.limit(random.nextInt(8) == 0 ? random.nextInt(bytes.limit()) : bytes.limit());
            try {
                sets += MirrorSet.of(bytes) == null ? 0 : 1;
            } catch (Refusal refusal) {
                assertFalse(refusal.getMessage().isEmpty());
            }
        }
        assertTrue(sets > 10_000);
    }

    @Test
    void fillerCoversItsOffsets() throws Exception {
        ByteBuffer filler = MirrorSet.filler(7, 9, 3);
        assertEquals(61, filler.remaining());
        assertEquals(3, filler.getInt(12));
        filler.putInt(12, -2);
        MirrorSet set = MirrorSet.of(filler);
        assertEquals(7, set.base(0));
        assertEquals(9, set.last());
        assertEquals(0, set.records(0));
    }

    @Test
    void markersAreControlBatches() {
        ByteBuffer marker = batch(0, 0, 1, -1);
        assertFalse(MirrorSet.isControl(marker));
        marker.putShort(21, (short) 0x30).putLong(43, 77);
        assertTrue(MirrorSet.isControl(marker));
        assertEquals(77, MirrorSet.producerId(marker));
    }
}
