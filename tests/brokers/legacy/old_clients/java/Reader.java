import java.util.List;
import java.util.Properties;

/** What the old consumers have in common. Used by one thread. A record is "topic partition offset timestamp type key value". */
interface Reader {
    void open(Properties properties) throws Exception;

    void assign(String topic, int partition, long offset) throws Exception;

    void subscribe(String topic) throws Exception;

    /** "topic partition" each. */
    List<String> assigned() throws Exception;

    /** Empty as well when nothing is assigned. */
    List<String> poll(long millis) throws Exception;

    /** All that was polled. */
    void commitPolled() throws Exception;

    void commit(String topic, int partition, long offset) throws Exception;

    /** "null" when there is none. */
    Object committed(String topic, int partition) throws Exception;

    /** `what`: "earliest", "latest" or a timestamp. */
    Object offset(String topic, int partition, String what) throws Exception;

    void close() throws Exception;
}
