package shoal.agent.mirror;

import java.lang.invoke.MethodHandle;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;
import shoal.agent.Broker;
import shoal.agent.Members;

/**
 * The promoted topics: keys of the cluster's default broker configuration, see the package.
 *
 * <p>Read from each new metadata image before anything else of it is applied. So a broker that becomes the leader of a
 * promoted topic knows that it is promoted. Only with KRaft; with ZooKeeper there is no image, and no mirror topic.
 */
public final class Promotions {
    static final String KEY = "shoal.mirror.promoted.";
    private static final String IMAGE = "org.apache.kafka.image.";
    private static final Class<?> METADATA = Members.type(IMAGE + "MetadataImage");
    private static final Class<?> CONFIGS = Members.type(IMAGE + "ConfigurationsImage");
    private static final Class<?> RESOURCE = Members.type("org.apache.kafka.common.config.ConfigResource");
    private static final Class<?> RESOURCE_TYPE = Members.type("org.apache.kafka.common.config.ConfigResource$Type");

    static final Method PATCHED =
            Members.method(Members.type(Broker.current().metadataCache), "setImage", void.class, METADATA);

    private static final MethodHandle OFFSET = Members.handle(Members.method(METADATA, "offset", long.class));
    private static final MethodHandle GET_CONFIGS = Members.handle(Members.method(METADATA, "configs", CONFIGS));
    private static final MethodHandle CONFIG =
            Members.handle(Members.method(CONFIGS, "configMapForResource", Map.class, RESOURCE));
    private static final MethodHandle NEW_RESOURCE =
            Members.handle(Members.constructor(RESOURCE, RESOURCE_TYPE, String.class));
    private static final MethodHandle BROKER = Members.getter(Members.field(RESOURCE_TYPE, "BROKER", RESOURCE_TYPE));

    private static Object configs; // the last that were read
    private static long offset = -1; // of the newest image
    private static volatile Map<String, String> idOf; // by topic; null: no image was seen yet

    private Promotions() {}

    /** A node that is a broker and a controller has two caches, and one may be behind the other. */
    public static synchronized void read(Object image) throws Throwable {
        long of = (long) OFFSET.invokeExact(image);
        if (of < offset) {
            return;
        }
        offset = of;
        Object found = (Object) GET_CONFIGS.invokeExact(image);
        if (found != configs) {
            configs = found;
            Map<String, String> promoted = new TreeMap<>();
            Object defaults = NEW_RESOURCE.invoke((Object) BROKER.invokeExact(), "");
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) (Object) CONFIG.invokeExact(found, defaults)).entrySet()) {
                String key = String.valueOf(entry.getKey());
                if (key.startsWith(KEY)) {
                    promoted.put(key.substring(KEY.length()), String.valueOf(entry.getValue()));
                }
            }
            idOf = Map.copyOf(promoted);
        }
    }

    /** Whether metadata come by KRaft; false also before the first image. */
    static boolean areKnown() {
        return idOf != null;
    }

    static boolean contain(String topic, String id) {
        return !id.isEmpty() && id.equals(idOf.get(topic));
    }

    static Map<String, String> all() {
        Map<String, String> known = idOf;
        return known == null ? Map.of() : known;
    }
}
