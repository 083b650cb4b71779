import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Writes message sets with the old producer on the class path, of any version. On stdin: codec, number of messages,
 * then per message its timestamp (int64), key and value (each after an int32 length, -1 = null); on stdout the set,
 * after its length.
 */
public final class WrittenSets {
    private static final int ROOM = 1 << 20;

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        while (true) {
            Object builder = builder(CompressionType.forId(in.readInt()));
            int messages = in.readInt();
            for (int offset = 0; offset < messages; offset++)
                append(builder, offset, in.readLong(), blob(in), blob(in));
            ByteBuffer set = written(builder);
            out.writeInt(set.remaining());
            out.write(set.array(), set.arrayOffset() + set.position(), set.remaining());
            out.flush();
        }
    }

    private static byte[] blob(DataInputStream in) throws Exception {
        int length = in.readInt();
        if (length < 0) return null;
        byte[] bytes = new byte[length];
        in.readFully(bytes);
        return bytes;
    }

    private static Object builder(CompressionType codec) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(ROOM);
        Method old = method(MemoryRecords.class, "emptyRecords", 2);
        if (old != null) return old.invoke(null, buffer, codec);
        Class<?> types = Class.forName("org.apache.kafka.common.record.TimestampType");
        Object createTime = types.getField("CREATE_TIME").get(null);
        return method(MemoryRecords.class, "builder", 3).invoke(null, buffer, codec, createTime);
    }

    private static void append(Object builder, long offset, long timestamp, byte[] key, byte[] value) throws Exception {
        Method offsets = method(builder.getClass(), "appendWithOffset", 4);
        Method timed = offsets != null ? offsets : method(builder.getClass(), "append", 4);
        if (timed != null) timed.invoke(builder, offset, timestamp, key, value);
        else method(builder.getClass(), "append", 3).invoke(builder, offset, key, value);
    }

    private static ByteBuffer written(Object builder) throws Exception {
        Method build = method(builder.getClass(), "build", 0);
        if (build != null) return ((MemoryRecords) build.invoke(builder)).buffer();
        method(builder.getClass(), "close", 0).invoke(builder);
        ByteBuffer set = ((MemoryRecords) builder).buffer().duplicate();
        if (set.position() > 0) set.flip();
        return set;
    }

    private static Method method(Class<?> owner, String name, int parameters) {
        for (Method found : owner.getMethods()) {
            if (found.getName().equals(name) && found.getParameterTypes().length == parameters) return found;
        }
        return null;
    }
}
