// Writes message sets of magic 0 and 1 with Kafka's classes; README.md has the command.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

public class GoldenSets {
    static final long FIRST = 1_500_000_000_000L;

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes();
    }

    static void write(Path file, int magic, Compression compression, TimestampType type) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            buffer, (byte) magic, compression, type, 1000L, type == TimestampType.CREATE_TIME ? -1 : FIRST + 999_999);
        String[] keys = {"key", null, ""};
        String[] values = {"value", null, "", "a longer value, ".repeat(20)};
        for (int i = 0; i < 12; i++)
            builder.append(magic == 0 ? -1 : FIRST + i * 7 % 5, bytes(keys[i % 3]), bytes(values[i % 4]));
        ByteBuffer out = builder.build().buffer();
        byte[] written = new byte[out.remaining()];
        out.get(written);
        Files.write(file, written);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Compression> codecs = new LinkedHashMap<>();
        codecs.put("none", Compression.NONE);
        codecs.put("gzip", Compression.gzip().build());
        codecs.put("snappy", Compression.snappy().build());
        codecs.put("lz4", Compression.lz4().build());
        for (Map.Entry<String, Compression> codec : codecs.entrySet())
            for (int magic = 0; magic < 2; magic++) {
                Path file = Path.of(arguments[0], "magic" + magic + "-" + codec.getKey() + ".bin");
                write(file, magic, codec.getValue(), TimestampType.CREATE_TIME);
            }
        Path appended = Path.of(arguments[0], "magic1-gzip-log-append-time.bin");
        write(appended, 1, codecs.get("gzip"), TimestampType.LOG_APPEND_TIME);
    }
}
