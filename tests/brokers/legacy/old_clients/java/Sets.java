import java.io.DataInputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * Reads record sets with the old client on the class path, of any version. On stdin the sets, each after its int32
 * length; on stdout a line per message, "offset timestamp type key value" (hex, "null", "-" for empty), then "ok" or
 * "error ...".
 */
public final class Sets {
    private static final char[] DIGITS = "0123456789abcdef".toCharArray();

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        while (true) {
            byte[] set = new byte[in.readInt()];
            in.readFully(set);
            for (String line : answer(ByteBuffer.wrap(set))) out.println(line);
            out.flush();
        }
    }

    private static List<String> answer(ByteBuffer set) {
        List<String> lines = new ArrayList<>();
        try {
            Iterator<?> entries = scala() ? scalaEntries(set) : entries(set);
            while (entries.hasNext()) lines.add(line(entries.next()));
            lines.add("ok");
        } catch (Throwable error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            lines.add("error " + cause);
        }
        return lines;
    }

    private static boolean scala() {
        try {
            Class.forName("kafka.message.ByteBufferMessageSet");
            return true;
        } catch (ClassNotFoundException noBroker) {
            return false;
        }
    }

    private static Iterator<?> entries(ByteBuffer set) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.common.record.MemoryRecords");
        Object records = type.getMethod("readableRecords", ByteBuffer.class).invoke(null, set);
        return ((Iterable<?>) (has(records, "deepEntries") ? of(records, "deepEntries") : records)).iterator();
    }

    private static Iterator<?> scalaEntries(ByteBuffer set) throws Exception {
        Class<?> type = Class.forName("kafka.message.ByteBufferMessageSet");
        Object iterator = of(type.getConstructor(ByteBuffer.class).newInstance(set), "iterator");
        List<Object> found = new ArrayList<>();
        while ((Boolean) of(iterator, "hasNext")) found.add(of(iterator, "next"));
        return found.iterator();
    }

    private static String line(Object entry) throws Exception {
        Object record = of(entry, has(entry, "record") ? "record" : "message");
        of(record, "ensureValid");
        boolean timed = has(record, "timestamp");
        String time = timed ? of(record, "timestamp") + " " + of(record, "timestampType") : "-1 NoTimestampType";
        Object value = of(record, has(record, "value") ? "value" : "payload");
        ByteBuffer key = (ByteBuffer) of(record, "key");
        return of(entry, "offset") + " " + time + " " + hex(key) + " " + hex((ByteBuffer) value);
    }

    private static boolean has(Object target, String method) {
        try {
            target.getClass().getMethod(method);
            return true;
        } catch (NoSuchMethodException absent) {
            return false;
        }
    }

    private static Object of(Object target, String method) throws Exception {
        java.lang.reflect.Method found = target.getClass().getMethod(method);
        found.setAccessible(true);
        return found.invoke(target);
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) return "null";
        StringBuilder text = new StringBuilder(bytes.hasRemaining() ? "" : "-");
        for (ByteBuffer rest = bytes.duplicate(); rest.hasRemaining(); ) {
            int next = rest.get() & 0xFF;
            text.append(DIGITS[next >> 4]).append(DIGITS[next & 0xF]);
        }
        return text.toString();
    }
}
