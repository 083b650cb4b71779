import java.util.List;
import java.util.Properties;

/** An old consumer, used by one thread. A record is "topic partition offset timestamp type key value". */
interface Reader {
    void open(Properties properties) throws Exception;

    void assign(String topic, int partition, long offset) throws Exception;

    void subscribe(String topic) throws Exception;

    /** Each "topic partition". */
    List<String> assigned() throws Exception;

    /** Also empty if nothing is assigned. */
    List<String> poll(long millis) throws Exception;

    /** Commits everything polled so far. */
    void commitPolled() throws Exception;

    void commit(String topic, int partition, long offset) throws Exception;

    /** "null" if there is no commit. */
    Object committed(String topic, int partition) throws Exception;

    /** `what`: "earliest", "latest" or a timestamp. */
    Object offset(String topic, int partition, String what) throws Exception;

    void close() throws Exception;
}
