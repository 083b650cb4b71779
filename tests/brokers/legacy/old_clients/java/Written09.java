import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;

/** Record sets of the Java producer of 0.9: magic 0. */
public final class Written09 implements Written.Maker {
    @Override
    public ByteBuffer make(int magic, int codec, long offset, List<Written.Message> messages) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        MemoryRecords records = MemoryRecords.emptyRecords(buffer, CompressionType.forId(codec), 1 << 30);
        long next = offset;
        for (Written.Message one : messages) records.append(next++, one.key, one.value);
        records.close();
        return records.buffer();
    }
}
