import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.BufferSupplier;

/** Writes record sets with Kafka's classes; README.md has the command. `test_golden.py` computes the same records. */
public final class GoldenBatches {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final long BASE_OFFSET = 1000;
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        for (String codec : CODECS) {
            Compression compression = Compression.of(codec).build();
            int count = codec.equals("none") ? 20 : 200;
            write(directory, codec, built(compression, RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME, count));
        }
        Compression gzip = Compression.gzip().build();
        write(directory, "magic0",
            built(Compression.NONE, RecordBatch.MAGIC_VALUE_V0, TimestampType.NO_TIMESTAMP_TYPE, 3));
        write(directory, "magic1", built(Compression.NONE, RecordBatch.MAGIC_VALUE_V1, TimestampType.CREATE_TIME, 3));
        write(directory, "magic1-gzip", built(gzip, RecordBatch.MAGIC_VALUE_V1, TimestampType.CREATE_TIME, 3));
        write(directory, "log-append-time",
            built(Compression.NONE, RecordBatch.MAGIC_VALUE_V2, TimestampType.LOG_APPEND_TIME, 5));
        SimpleRecord[] five = records(5, true).toArray(new SimpleRecord[0]);
        MemoryRecords transactional =
            MemoryRecords.withTransactionalRecords(BASE_OFFSET, Compression.NONE, 77L, (short) 3, 40, 9, five);
        write(directory, "transactional", transactional);
        write(directory, "commit-marker", MemoryRecords.withEndTransactionMarker(
            BASE_OFFSET, FIRST_TIMESTAMP, 9, 77L, (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 5)));
        write(directory, "compacted", compacted(transactional, 1));
        write(directory, "compacted-empty", compacted(transactional, 99));
    }

    /** Keeps records with odd offset deltas of at least `from`, with a delete horizon, as the log cleaner does. */
    private static MemoryRecords compacted(MemoryRecords records, int from) {
        ByteBuffer retained = ByteBuffer.allocate(1 << 20);
        RecordFilter filter = new RecordFilter(5_000L, 86_400_000L) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, true);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                long delta = record.offset() - BASE_OFFSET;
                return delta % 2 == 1 && delta >= from;
            }
        };
        records.filterTo(filter, retained, BufferSupplier.NO_CACHING);
        retained.flip();
        return MemoryRecords.readableRecords(retained);
    }

    private static MemoryRecords built(Compression compression, byte magic, TimestampType type, int count) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 20), magic, compression, type, BASE_OFFSET, FIRST_TIMESTAMP + 999_999);
        records(count, magic == RecordBatch.MAGIC_VALUE_V2).forEach(builder::append);
        return builder.build();
    }

    private static List<SimpleRecord> records(int count, boolean withHeaders) {
        List<SimpleRecord> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] key = i % 5 == 0 ? null : bytes("key-" + i);
            byte[] value = i % 7 == 0 ? null : bytes(("value-" + i + " ").repeat(i));
            List<Header> headers = new ArrayList<>();
            for (int j = 0; withHeaders && j < i % 3; j++) {
                headers.add(new RecordHeader("h" + j, (i + j) % 2 == 0 ? null : bytes("v" + i)));
            }
            records.add(new SimpleRecord(FIRST_TIMESTAMP + 7 * (i % 50), key, value, headers.toArray(new Header[0])));
        }
        return records;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void write(Path directory, String name, MemoryRecords records) throws Exception {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(directory.resolve(name + ".bin"), bytes);
    }
}
