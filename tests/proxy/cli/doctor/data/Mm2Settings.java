import java.io.FileInputStream;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

import org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.connector.policy.ConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.mirror.MirrorConnectorConfig;
import org.apache.kafka.connect.mirror.MirrorMakerConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;
import org.apache.kafka.connect.mirror.SourceAndTarget;
import org.apache.kafka.connect.runtime.ConnectorConfig;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.isolation.Plugins;

/** MirrorMaker 2's own reading of properties: per file a JSON line with the settings of the data clients of A->B. */
public class Mm2Settings {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties properties = new Properties();
            try (FileInputStream in = new FileInputStream(file)) {
                properties.load(in);
            }
            Map<String, String> raw = new HashMap<>();
            properties.forEach((key, value) -> raw.put((String) key, (String) value));
            raw.put("plugin.discovery", "service_load"); // much faster than scanning the class path
            System.out.println(json(settings(raw)));
        }
    }

    static Map<String, Object> settings(Map<String, String> raw) throws Exception {
        MirrorMakerConfig config = new MirrorMakerConfig(raw);
        SourceAndTarget flow = new SourceAndTarget("A", "B");
        Map<String, String> connector = config.connectorBaseConfig(flow, MirrorSourceConnector.class);
        Map<String, String> worker = config.workerConfig(flow);
        List<String> herders = new ArrayList<>();
        config.clusterPairs().forEach(pair -> herders.add(pair.toString()));
        herders.sort(null);
        Map<String, Object> found = new TreeMap<>();
        found.put("herders", String.join(",", herders));
        found.put("consumer", strings(consumer(connector)));
        found.put("producer", strings(producer(worker, connector)));
        found.put("connector", strings(connector));
        found.put("worker", strings(worker));
        return found;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> consumer(Map<String, String> connector) throws Exception {
        Method method = MirrorConnectorConfig.class.getDeclaredMethod("sourceConsumerConfig", Map.class);
        method.setAccessible(true);
        return (Map<String, Object>) method.invoke(null, connector);
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> producer(Map<String, String> worker, Map<String, String> connector) throws Exception {
        Method method = Worker.class.getDeclaredMethod("baseProducerConfigs", String.class, String.class,
            WorkerConfig.class, ConnectorConfig.class, Class.class, ConnectorClientConfigOverridePolicy.class,
            String.class);
        method.setAccessible(true);
        return (Map<String, Object>) method.invoke(null, "MirrorSourceConnector", "id", new DistributedConfig(worker),
            new ConnectorConfig(new Plugins(Map.of("plugin.discovery", "service_load")), connector),
            MirrorSourceConnector.class, new AllConnectorClientConfigOverridePolicy(), "cluster");
    }

    static Map<String, Object> strings(Map<String, ?> settings) {
        Map<String, Object> found = new TreeMap<>();
        settings.forEach((key, value) -> found.put(key, String.valueOf(value)));
        return found;
    }

    @SuppressWarnings("unchecked")
    static String json(Object value) {
        if (value instanceof Map) {
            List<String> pairs = new ArrayList<>();
            ((Map<String, Object>) value).forEach((key, inner) -> pairs.add(json(key) + ": " + json(inner)));
            return "{" + String.join(", ", pairs) + "}";
        }
        return "\"" + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }
}
