import java.util.List;
import java.util.Properties;

/** What the old producers have in common. */
interface Writer {
    void open(Properties properties) throws Exception;

    /** `timestamp` -1: the client has none to give. */
    void send(String topic, int partition, long timestamp, byte[] key, byte[] value);

    /** For each record, in order of sending: its offset ("-" where the client does not say) or "error ...". */
    List<String> flush() throws Exception;

    void close() throws Exception;
}
