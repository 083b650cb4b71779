import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.api.ConsumerMetadataRequest;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.cluster.Broker;
import kafka.common.ErrorMapping;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.message.ByteBufferMessageSet;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;

/**
 * SimpleConsumer of 0.8, used as applications used it: they found the leader, skipped messages before the requested
 * offset, and found the coordinator for offsets. "offsets.version" is the version of the offset requests: 0 stores
 * offsets in ZooKeeper, 1 in Kafka.
 */
public final class SimpleReader implements Reader {
    private static final int TIMEOUT = 30_000;
    private static final int BUFFER = 64 * 1024;
    private static final String ME = "simple";

    private final Map<TopicAndPartition, Long> positions = new LinkedHashMap<>();
    private final Map<TopicAndPartition, SimpleConsumer> leaders = new LinkedHashMap<>();
    private String host;
    private int port;
    private String group;
    private short version;
    private int fetchSize;
    private SimpleConsumer coordinator;

    @Override
    public void open(Properties properties) {
        String[] bootstrap = properties.getProperty("bootstrap.servers").split(":");
        host = bootstrap[0];
        port = Integer.parseInt(bootstrap[1]);
        group = properties.getProperty("group.id");
        version = Short.parseShort(properties.getProperty("offsets.version", "1"));
        fetchSize = Integer.parseInt(properties.getProperty("max.partition.fetch.bytes", "1048576"));
    }

    @Override
    public void assign(String topic, int partition, long offset) {
        positions.put(new TopicAndPartition(topic, partition), offset);
    }

    @Override
    public void subscribe(String topic) {
        throw new UnsupportedOperationException("a SimpleConsumer has no groups");
    }

    @Override
    public List<String> assigned() {
        List<String> all = new ArrayList<>();
        for (TopicAndPartition one : positions.keySet()) all.add(one.topic() + " " + one.partition());
        return all;
    }

    @Override
    public List<String> poll(long millis) throws Exception {
        List<String> records = new ArrayList<>();
        if (positions.isEmpty()) Thread.sleep(1);
        for (TopicAndPartition place : positions.keySet()) {
            try {
                records.addAll(fetch(place, (int) millis));
            } catch (Exception error) {
                forget(place);
                throw error;
            }
        }
        return records;
    }

    @Override
    public void commitPolled() throws Exception {
        for (Map.Entry<TopicAndPartition, Long> one : positions.entrySet())
            commit(one.getKey().topic(), one.getKey().partition(), one.getValue());
    }

    @Override
    public void commit(String topic, int partition, long offset) throws Exception {
        TopicAndPartition place = new TopicAndPartition(topic, partition);
        OffsetAndMetadata said = new OffsetAndMetadata(offset, "said by a test", -1L);
        Map<TopicAndPartition, OffsetAndMetadata> offsets = Collections.singletonMap(place, said);
        OffsetCommitRequest request = new OffsetCommitRequest(group, offsets, 1, ME, version);
        raise(((Number) coordinator().commitOffsets(request).errors().get(place)).shortValue());
    }

    /** Version 0 throws UnknownTopicOrPartitionException for a partition without a commit. */
    @Override
    public Object committed(String topic, int partition) throws Exception {
        TopicAndPartition place = new TopicAndPartition(topic, partition);
        OffsetFetchRequest request = new OffsetFetchRequest(group, Arrays.asList(place), version, 1, ME);
        OffsetMetadataAndError found = coordinator().fetchOffsets(request).offsets().get(place);
        raise(found.error());
        return found.offset() < 0 ? "null" : found.offset() + " " + found.metadata();
    }

    @Override
    public Object offset(String topic, int partition, String what) throws Exception {
        TopicAndPartition place = new TopicAndPartition(topic, partition);
        String[] words = what.split(","); // TIMESTAMP or TIMESTAMP,COUNT
        long time = words[0].equals("earliest") ? -2 : words[0].equals("latest") ? -1 : Long.parseLong(words[0]);
        int count = words.length > 1 ? Integer.parseInt(words[1]) : 1;
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked =
            Collections.singletonMap(place, new PartitionOffsetRequestInfo(time, count));
        OffsetRequest request = new OffsetRequest(asked, kafka.api.OffsetRequest.CurrentVersion(), ME);
        OffsetResponse answer = leader(place).getOffsetsBefore(request);
        raise(answer.errorCode(topic, partition));
        StringBuilder offsets = new StringBuilder();
        for (long one : answer.offsets(topic, partition)) offsets.append(offsets.length() > 0 ? "," : "").append(one);
        return offsets;
    }

    @Override
    public void close() {
        for (SimpleConsumer one : leaders.values()) one.close();
        if (coordinator != null) coordinator.close();
    }

    private List<String> fetch(TopicAndPartition place, int millis) throws Exception {
        long from = positions.get(place);
        FetchRequestBuilder builder = new FetchRequestBuilder().clientId(ME).maxWait(millis).minBytes(1);
        builder.addFetch(place.topic(), place.partition(), from, fetchSize);
        FetchResponse answer = leader(place).fetch(builder.build());
        raise(answer.errorCode(place.topic(), place.partition()));
        ByteBufferMessageSet messages = answer.messageSet(place.topic(), place.partition());
        List<String> records = new ArrayList<>();
        for (MessageAndOffset one : messages) {
            if (one.offset() < positions.get(place)) continue;
            records.add(line(place, one));
            positions.put(place, one.nextOffset());
        }
        if (messages.sizeInBytes() > 0 && messages.validBytes() == 0)
            throw new IllegalStateException("the message at " + from + " is larger than the fetch size " + fetchSize);
        return records;
    }

    private SimpleConsumer leader(TopicAndPartition place) throws Exception {
        if (!leaders.containsKey(place)) leaders.put(place, to(found(place)));
        return leaders.get(place);
    }

    private void forget(TopicAndPartition place) {
        SimpleConsumer one = leaders.remove(place);
        if (one != null) one.close();
    }

    private Broker found(TopicAndPartition place) throws Exception {
        SimpleConsumer seed = new SimpleConsumer(host, port, TIMEOUT, BUFFER, ME);
        try {
            TopicMetadataRequest request = new TopicMetadataRequest(Arrays.asList(place.topic()));
            for (TopicMetadata topic : seed.send(request).topicsMetadata())
                for (PartitionMetadata one : topic.partitionsMetadata())
                    if (one.partitionId() == place.partition() && one.leader() != null) return one.leader();
        } finally {
            seed.close();
        }
        throw new IllegalStateException("no leader of " + place);
    }

    private SimpleConsumer coordinator() throws Exception {
        if (coordinator != null) return coordinator;
        BlockingChannel channel = new BlockingChannel(host, port, BUFFER, BUFFER, TIMEOUT);
        channel.connect();
        try {
            ConsumerMetadataResponse answer = null;
            for (int left = 100; left > 0 && (answer == null || answer.errorCode() != 0); left--) {
                if (answer != null) Thread.sleep(100); // the offsets topic is being created
                channel.send(new ConsumerMetadataRequest(group, ConsumerMetadataRequest.CurrentVersion(), 1, ME));
                answer = ConsumerMetadataResponse.readFrom(channel.receive().buffer());
            }
            raise(answer.errorCode());
            return coordinator = to(answer.coordinator());
        } finally {
            channel.disconnect();
        }
    }

    private static SimpleConsumer to(Broker broker) {
        return new SimpleConsumer(broker.host(), broker.port(), TIMEOUT, BUFFER, ME);
    }

    private static void raise(short code) throws Exception {
        Throwable error = code == 0 ? null : ErrorMapping.exceptionFor(code);
        if (error != null) throw new Exception("code " + code + ": " + error.getClass().getSimpleName());
    }

    private static String line(TopicAndPartition place, MessageAndOffset one) {
        one.message().ensureValid();
        String[] words = {
            place.topic(), "" + place.partition(), "" + one.offset(), "-1 NoTimestampType",
            Words.word(copied(one.message().key())), Words.word(copied(one.message().payload())),
        };
        return String.join(" ", words);
    }

    private static byte[] copied(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
