package shoal.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RecordSetTest {
    private static final int TRANSACTIONAL = 0x10;
    private static final int CONTROL = 0x20;

    /** Headers and arbitrary payload: these tests read no records or CRCs. */
    private static ByteBuffer batch(int payload, int attributes, long producerId, int epoch) {
        ByteBuffer batch = ByteBuffer.allocate(61 + payload);
        batch.putInt(8, 49 + payload).put(16, (byte) 2).putShort(21, (short) attributes);
        batch.putLong(43, producerId).putShort(51, (short) epoch);
        return batch;
    }

    private static ByteBuffer plain(int payload) {
        return batch(payload, 0, -1, -1);
    }

    private static ByteBuffer set(ByteBuffer... batches) {
        int size = 0;
        for (ByteBuffer batch : batches) {
            size += batch.limit();
        }
        ByteBuffer set = ByteBuffer.allocate(size);
        for (ByteBuffer batch : batches) {
            set.put(batch.duplicate());
        }
        return set.flip();
    }

    private static ByteBuffer spoilt(Consumer<ByteBuffer> change) {
        ByteBuffer second = plain(7);
        change.accept(second);
        return set(plain(5), second, plain(9));
    }

    @Test
    void setIsCutAtItsBatches() {
        RecordSet set = RecordSet.of(set(plain(5), batch(0, 4, 77, 3), plain(9)));
        assertEquals(3, set.size());
        assertEquals(66, set.batch(0).limit());
        assertEquals(61, set.batch(1).limit());
        assertEquals(70, set.batch(2).limit());
        assertEquals(4, set.codec(1));
        assertEquals(77, set.producerId(1));
        assertTrue(set.hasProducerIds());
    }

    @Test
    void batchesShareTheBytesOfTheSet() {
        ByteBuffer bytes = set(plain(5), plain(7));
        RecordSet.of(bytes).batch(1).putLong(0, 42);
        assertEquals(42, bytes.getLong(66));
        assertEquals(0, bytes.position());
    }

    @Test
    void manyBatches() {
        ByteBuffer[] batches = new ByteBuffer[1000];
        java.util.Arrays.setAll(batches, index -> plain(index % 7));
        RecordSet set = RecordSet.of(set(batches));
        assertEquals(1000, set.size());
        assertEquals(61 + 999 % 7, set.batch(999).limit());
        assertFalse(set.hasProducerIds());
    }

    @Test
    void oneBatchIsLeftToKafka() {
        assertNull(RecordSet.of(plain(5)));
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 11, 12, 60})
    void lessThanABatchIsLeftToKafka(int size) {
        assertNull(RecordSet.of(ByteBuffer.allocate(size)));
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 12, 60})
    void tailThatIsNoBatchIsLeftToKafka(int size) {
        assertNull(RecordSet.of(set(plain(5), plain(7), ByteBuffer.allocate(size))));
    }

    @Test
    void anyCutThroughTheLastBatchIsLeftToKafka() {
        ByteBuffer whole = set(plain(5), plain(7), plain(9));
        for (int limit = 135; limit < whole.capacity(); limit++) {
            assertNull(RecordSet.of(whole.duplicate().limit(limit)), "cut at " + limit);
        }
        assertNotNull(RecordSet.of(whole));
    }

    @Test
    void lengthsThatNoBatchHasAreLeftToKafka() {
        for (int length : new int[] {Integer.MIN_VALUE, -13, -12, -1, 0, 48, Integer.MAX_VALUE}) {
            assertNull(RecordSet.of(spoilt(batch -> batch.putInt(8, length))), "length " + length);
        }
    }

    @ParameterizedTest
    @ValueSource(bytes = {0, 1, 3, -1})
    void anotherMagicIsLeftToKafka(byte magic) {
        assertNull(RecordSet.of(spoilt(batch -> batch.put(16, magic))));
    }

    @ParameterizedTest
    @ValueSource(shorts = {5, 6, 7})
    void unknownCodecsAreLeftToKafka(short codec) {
        assertNull(RecordSet.of(spoilt(batch -> batch.putShort(21, codec))));
    }

    @Test
    void controlBatchesAreLeftToKafka() {
        assertNull(RecordSet.of(set(plain(5), batch(0, CONTROL, 9, 0))));
        assertNull(RecordSet.of(set(batch(0, CONTROL, 9, 0), plain(5))));
    }

    @Test
    void transactionsAreAllOrNoneAndOfOneProducer() {
        ByteBuffer first = batch(0, TRANSACTIONAL, 9, 1);
        assertTrue(RecordSet.of(set(first, batch(3, TRANSACTIONAL, 9, 1).putInt(53, 1))).isTransactional());
        assertFalse(RecordSet.of(set(batch(0, 0, 9, 1), batch(3, 0, 9, 1).putInt(53, 1))).isTransactional());
        assertNull(RecordSet.of(set(first, batch(3, TRANSACTIONAL, 8, 1))));
        assertNull(RecordSet.of(set(first, batch(3, TRANSACTIONAL, 9, 2))));
        assertNull(RecordSet.of(set(first, batch(3, 0, 9, 1).putInt(53, 1))));
        assertNull(RecordSet.of(set(batch(3, 0, 9, 1).putInt(53, 1).putInt(23, -2), first)));
    }

    /** A numbered batch of a producer. */
    private static ByteBuffer numbered(long producerId, int epoch, int sequence, int records) {
        return batch(0, 0, producerId, epoch).putInt(53, sequence).putInt(23, records - 1);
    }

    @Test
    void otherProducersMayShareASet() {
        assertNotNull(RecordSet.of(set(batch(0, 0, 9, 1), batch(0, 0, 8, 0), plain(0))));
    }

    @Test
    void sequencesOfAProducerFollowEachOther() {
        ByteBuffer first = numbered(9, 0, 4, 3);
        ByteBuffer other = numbered(8, 2, 0, 1);
        assertNotNull(RecordSet.of(set(first, numbered(9, 0, 7, 2), plain(0), other, numbered(9, 0, 9, 1))));
        for (int sequence : new int[] {-1, 0, 4, 6, 8}) {
            assertNull(RecordSet.of(set(first, plain(0), numbered(9, 0, sequence, 2))), "sequence " + sequence);
        }
        assertNull(RecordSet.of(set(first, numbered(9, 1, 7, 2))));
        assertNull(RecordSet.of(set(first, numbered(9, 1, 0, 2))));
    }

    @Test
    void sequencesBeginAgainAfterTheLargest() {
        int max = Integer.MAX_VALUE;
        assertNotNull(RecordSet.of(set(numbered(9, 0, max, 1), numbered(9, 0, 0, 1))));
        assertNotNull(RecordSet.of(set(numbered(9, 0, max - 1, 5), numbered(9, 0, 3, 1))));
        assertNull(RecordSet.of(set(numbered(9, 0, max - 1, 5), numbered(9, 0, 2, 1))));
    }

    @Test
    void partOfABufferIsLeftToKafka() {
        assertNull(RecordSet.of(set(plain(5), plain(7)).position(66)));
    }
}
