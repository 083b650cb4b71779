import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Many Java producers in one process, with default settings except linger.ms. Takes the same arguments as load.py. */
public class Producers {
    private static final ConcurrentLinkedQueue<Integer> LATENCIES = new ConcurrentLinkedQueue<>();
    private static final double WARM_UP_S = 4;
    private static final AtomicInteger FAILED = new AtomicInteger();
    private static final Map<String, String> OPTIONS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (int at = 0; at < arguments.length; at += 2) {
            OPTIONS.put(arguments[at].substring(2), arguments[at + 1]);
        }
        List<KafkaProducer<String, String>> producers = new ArrayList<>();
        int[] sent = new int[number("producers")];
        Random chance = new Random(number("first"));
        for (int at = 0; at < sent.length; at++) {
            producers.add(new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer()));
            send(producers.get(at), at, sent, chance).get();
        }
        run(producers, sent, chance, WARM_UP_S);
        LATENCIES.clear();
        System.out.println("ready");
        while (!new java.io.File(OPTIONS.get("go")).exists()) {
            Thread.sleep(10);
        }
        double seconds = run(producers, sent, chance, decimal("seconds"));
        write();
        int total = 0;
        for (int each : sent) {
            total += each;
        }
        System.out.printf("{\"sent\": %d, \"failed\": %d, \"seconds\": %f}%n", total, FAILED.get(), seconds);
        System.exit(0);
    }

    private static double run(List<KafkaProducer<String, String>> producers, int[] sent, Random chance, double length)
            throws Exception {
        long begin = System.nanoTime();
        long count = (long) (decimal("rate") * length);
        for (long done = 0; done < count; ) {
            long due = Math.min(count, (long) ((System.nanoTime() - begin) / 1e9 * decimal("rate")) + 1);
            for (; done < due; done++) {
                int at = (int) (done % sent.length);
                send(producers.get(at), at, sent, chance);
            }
            Thread.sleep(1);
        }
        for (KafkaProducer<String, String> producer : producers) {
            producer.flush();
        }
        return (System.nanoTime() - begin) / 1e9;
    }

    private static java.util.concurrent.Future<?> send(
            KafkaProducer<String, String> producer, int at, int[] sent, Random chance) {
        StringBuilder value = new StringBuilder();
        value.append(number("first") + at).append(':').append(sent[at]++).append(':');
        while (value.length() < number("size")) {
            value.append('x');
        }
        int partition = chance.nextInt(number("partitions"));
        long begin = System.nanoTime();
        ProducerRecord<String, String> record =
                new ProducerRecord<>(OPTIONS.get("topic"), partition, null, value.toString());
        return producer.send(record, (done, error) -> {
            if (error == null) {
                LATENCIES.add((int) ((System.nanoTime() - begin) / 1000));
            } else {
                FAILED.incrementAndGet();
            }
        });
    }

    private static Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", OPTIONS.get("bootstrap"));
        settings.put("linger.ms", 0);
        settings.put("acks", OPTIONS.get("acks"));
        settings.put("buffer.memory", 1 << 20);
        return settings;
    }

    private static void write() throws Exception {
        ByteBuffer bytes = ByteBuffer.allocate(4 * LATENCIES.size()).order(ByteOrder.LITTLE_ENDIAN);
        LATENCIES.forEach(bytes::putInt);
        try (DataOutputStream out = new DataOutputStream(new FileOutputStream(OPTIONS.get("out")))) {
            out.write(bytes.array());
        }
    }

    private static int number(String name) {
        return Integer.parseInt(OPTIONS.get(name));
    }

    private static double decimal(String name) {
        return Double.parseDouble(OPTIONS.get(name));
    }
}
