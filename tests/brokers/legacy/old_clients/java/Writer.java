import java.util.List;
import java.util.Properties;

/** An old producer. */
interface Writer {
    void open(Properties properties) throws Exception;

    /** `timestamp` -1: the client sends none. */
    void send(String topic, int partition, long timestamp, byte[] key, byte[] value);

    /** Per record, in order of sending: its offset ("-" if the client does not return it) or "error ...". */
    List<String> flush() throws Exception;

    void close() throws Exception;
}
