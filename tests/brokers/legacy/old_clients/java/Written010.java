import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

/** Record sets of the Java producer of 0.10.2. */
public final class Written010 implements Written.Maker {
    @Override
    public ByteBuffer make(int magic, int codec, long offset, List<Written.Message> messages) {
        CompressionType type = CompressionType.forId(codec);
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        MemoryRecordsBuilder builder =
            MemoryRecords.builder(buffer, (byte) magic, type, TimestampType.CREATE_TIME, offset);
        long next = offset;
        for (Written.Message one : messages) builder.appendWithOffset(next++, one.timestamp, one.key, one.value);
        return builder.build().buffer();
    }
}
