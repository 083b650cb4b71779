import java.io.Reader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/**
 * The counters of `shoal spark cascade`, as a Kafka Streams program:
 *
 * <pre>
 *     rows -> 1 minute -> changes -> 10 minutes -> changes -> 1 hour -> changes -> 1 day
 * </pre>
 *
 * A table passes its changes on at each commit, and the next level counts these. With "summed", rows are added up by
 * key and minute for a second before the first table sees them, which Streams does not do by itself (and a crash would
 * lose). It ends when each level has counted all rows, and writes its counters.
 */
public final class CascadeStreams {
    private static final long MINUTE = 60;
    private static final List<Long> ABOVE = List.of(600L, 3_600L, 86_400L);
    private static final long AHEAD_SECONDS = 3_600;
    private static final Duration KEEP = Duration.ofDays(1);
    private static final Duration SUM_FOR = Duration.ofSeconds(1);
    private static final Serde<Counts> COUNTS = Serdes.serdeFrom(encoder(), decoder());
    private static final Map<Long, Map<String, Counts>> LATEST = new ConcurrentHashMap<>();

    record Counts(long records, long bytes, long batches, long restamped) {
        static final Counts NONE = new Counts(0, 0, 0, 0);

        Counts plus(Counts more) {
            return new Counts(
                    records + more.records, bytes + more.bytes, batches + more.batches, restamped + more.restamped);
        }

        Counts minus(Counts less) {
            return new Counts(
                    records - less.records, bytes - less.bytes, batches - less.batches, restamped - less.restamped);
        }
    }

    /** `seconds`: the batch's own time, or that of its capture if its own is impossible. */
    record Row(long seconds, Counts counts) {
        static Row decoded(ByteBuffer data) {
            long captured = data.getLong() / 1_000_000_000, own = data.getLong() / 1_000;
            boolean isTrue = own > 0 && own - captured < AHEAD_SECONDS;
            Counts counts = new Counts(data.getInt(), data.getInt(), 1, isTrue ? 0 : 1);
            return new Row(isTrue ? own : captured, counts);
        }
    }

    record Place(String key, long window) {}

    static final class Summed extends ContextualFixedKeyProcessor<String, Counts, Counts> {
        private final Map<Place, FixedKeyRecord<String, Counts>> held = new HashMap<>();

        @Override
        public void init(FixedKeyProcessorContext<String, Counts> context) {
            super.init(context);
            context.schedule(SUM_FOR, PunctuationType.WALL_CLOCK_TIME, now -> flush());
        }

        @Override
        public void process(FixedKeyRecord<String, Counts> record) {
            Place place = new Place(record.key(), record.timestamp() / (MINUTE * 1_000));
            held.merge(place, record, (sum, more) -> sum.withValue(sum.value().plus(more.value())));
        }

        private void flush() {
            held.values().forEach(context()::forward);
            held.clear();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(file);
        }
        long rows = Long.parseLong(properties.getProperty("shoal.rows"));
        boolean summed = Boolean.parseBoolean(properties.getProperty("shoal.summed"));
        StreamsBuilder builder = new StreamsBuilder();
        Serde<Row> serde = Serdes.serdeFrom(
                (topic, row) -> {
                    throw new UnsupportedOperationException("rows are only read");
                },
                (topic, data) -> Row.decoded(ByteBuffer.wrap(data)));
        Consumed<String, Row> consumed = Consumed.with(Serdes.String(), serde)
                .withTimestampExtractor((row, before) -> ((Row) row.value()).seconds * 1_000);
        KStream<String, Counts> counts =
                builder.stream(properties.getProperty("shoal.topic"), consumed).mapValues(Row::counts);
        build(summed ? counts.processValues(Summed::new) : counts);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.start();
            while (!isComplete(rows)) {
                Thread.sleep(50);
            }
        }
        Files.write(Path.of(properties.getProperty("shoal.out")), lines());
    }

    private static void build(KStream<String, Counts> counts) {
        KTable<Windowed<String>, Counts> minutes = counts.groupByKey(Grouped.with(Serdes.String(), COUNTS))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(MINUTE), KEEP))
                .aggregate(
                        () -> Counts.NONE,
                        (key, row, sum) -> sum.plus(row),
                        Materialized.with(Serdes.String(), COUNTS));
        Function<Windowed<String>, String> name = key -> key.window().start() / 1_000 + "\t" + key.key();
        keepLatest(MINUTE, minutes, name);
        KTable<String, Counts> level = above(ABOVE.get(0), minutes, name);
        for (long seconds : ABOVE.subList(1, ABOVE.size())) {
            level = above(seconds, level, Function.identity());
        }
    }

    private static <K> KTable<String, Counts> above(
            long seconds, KTable<K, Counts> below, Function<K, String> name) {
        KTable<String, Counts> level = below.groupBy(
                        (key, counts) -> KeyValue.pair(widened(name.apply(key), seconds), counts),
                        Grouped.with(Serdes.String(), COUNTS))
                .aggregate(
                        () -> Counts.NONE,
                        (key, now, sum) -> sum.plus(now),
                        (key, before, sum) -> sum.minus(before),
                        Materialized.with(Serdes.String(), COUNTS));
        keepLatest(seconds, level, Function.identity());
        return level;
    }

    private static String widened(String name, long seconds) {
        int end = name.indexOf('\t');
        long window = Long.parseLong(name.substring(0, end));
        return window - window % seconds + name.substring(end);
    }

    private static <K> void keepLatest(long seconds, KTable<K, Counts> level, Function<K, String> name) {
        Map<String, Counts> latest = LATEST.computeIfAbsent(seconds, each -> new ConcurrentHashMap<>());
        level.toStream().foreach((key, counts) -> latest.put(name.apply(key), counts));
    }

    private static boolean isComplete(long rows) {
        return LATEST.values().stream()
                .allMatch(level -> level.values().stream().mapToLong(Counts::batches).sum() == rows);
    }

    private static List<String> lines() {
        return LATEST.entrySet().stream()
                .flatMap(level -> level.getValue().entrySet().stream()
                        .map(each -> line(level.getKey(), each.getKey(), each.getValue())))
                .collect(Collectors.toList());
    }

    private static String line(long level, String name, Counts sum) {
        return String.join(
                "\t", "" + level, name, "" + sum.records, "" + sum.bytes, "" + sum.batches, "" + sum.restamped);
    }

    private static Serializer<Counts> encoder() {
        return (topic, counts) -> counts == null
                ? null
                : ByteBuffer.allocate(4 * Long.BYTES)
                        .putLong(counts.records)
                        .putLong(counts.bytes)
                        .putLong(counts.batches)
                        .putLong(counts.restamped)
                        .array();
    }

    private static Deserializer<Counts> decoder() {
        return (topic, data) -> {
            if (data == null) {
                return null;
            }
            ByteBuffer from = ByteBuffer.wrap(data);
            return new Counts(from.getLong(), from.getLong(), from.getLong(), from.getLong());
        };
    }
}
