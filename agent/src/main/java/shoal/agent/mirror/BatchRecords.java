package shoal.agent.mirror;

import java.io.Closeable;
import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Objects;
import shoal.agent.Members;

/** The records of one batch, decompressed as they are read. */
final class BatchRecords implements Closeable {
    private static final Class<?> BATCH = Members.recordType("RecordBatch");
    private static final Class<?> RECORD = Members.recordType("Record");
    private static final Class<?> BUFFERS = Members.type("org.apache.kafka.common.utils.BufferSupplier");
    private static final MethodHandle NO_CACHING =
            Members.getter(Members.field(BUFFERS, "NO_CACHING", BUFFERS));
    private static final MethodHandle WHOLE = iterator(BATCH, "streamingIterator");
    private static final MethodHandle WITHOUT_CONTENT =
            iterator(Members.recordType("MutableRecordBatch"), "skipKeyValueIterator");
    private static final MethodHandle OFFSET = ofRecord("offset", long.class);
    private static final MethodHandle TIMESTAMP = ofRecord("timestamp", long.class);
    private static final MethodHandle HAS_KEY = ofRecord("hasKey", boolean.class);
    private static final MethodHandle KEY = ofRecord("key", ByteBuffer.class);
    private static final MethodHandle VALUE = ofRecord("value", ByteBuffer.class);
    private static final MethodHandle HEADERS =
            ofRecord("headers", Members.type("[Lorg.apache.kafka.common.header.Header;"));

    private final Iterator<?> iterator;

    private BatchRecords(MethodHandle iterator, Object batch) throws Throwable {
        try {
            this.iterator = (Iterator<?>) (Object) iterator.invokeExact(batch, (Object) NO_CACHING.invokeExact());
        } catch (RuntimeException e) { // a codec reads its header here
            throw unreadable(e);
        }
    }

    static BatchRecords of(Object batch) throws Throwable {
        return new BatchRecords(WHOLE, batch);
    }

    /** Keys and values are skipped; only {@link #offset} and {@link #hasKey} may be asked. */
    static BatchRecords withoutContent(Object batch) throws Throwable {
        return new BatchRecords(WITHOUT_CONTENT, batch);
    }

    /** InvalidRecordException, KafkaException of a codec. */
    private static Refusal unreadable(RuntimeException e) {
        return Refusal.malformed("a batch can't be read: " + e.getMessage());
    }

    /** Null: there are no more. */
    Object next() throws Refusal {
        try {
            return iterator.hasNext() ? iterator.next() : null;
        } catch (RuntimeException e) {
            throw unreadable(e);
        }
    }

    /** The record at an offset, or null; the ones before it are passed over. */
    Object at(long offset) throws Throwable {
        Object record = next();
        while (record != null && offset(record) < offset) {
            record = next();
        }
        return record;
    }

    @Override
    public void close() throws IOException {
        ((Closeable) iterator).close();
    }

    static long offset(Object record) throws Throwable {
        return (long) OFFSET.invokeExact(record);
    }

    static boolean hasKey(Object record) throws Throwable {
        return (boolean) HAS_KEY.invokeExact(record);
    }

    static boolean equal(Object one, Object other) throws Throwable {
        return offset(one) == offset(other)
                && (long) TIMESTAMP.invokeExact(one) == (long) TIMESTAMP.invokeExact(other)
                && Objects.equals((Object) KEY.invokeExact(one), (Object) KEY.invokeExact(other))
                && Objects.equals((Object) VALUE.invokeExact(one), (Object) VALUE.invokeExact(other))
                && Arrays.equals(headers(one), headers(other));
    }

    private static Object[] headers(Object record) throws Throwable {
        return (Object[]) (Object) HEADERS.invokeExact(record);
    }

    private static MethodHandle iterator(Class<?> owner, String name) {
        Class<?> iterator = Members.type("org.apache.kafka.common.utils.CloseableIterator");
        return Members.handle(Members.method(owner, name, iterator, BUFFERS));
    }

    private static MethodHandle ofRecord(String name, Class<?> type) {
        return Members.handle(Members.method(RECORD, name, type));
    }
}
