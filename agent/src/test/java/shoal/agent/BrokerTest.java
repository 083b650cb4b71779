package shoal.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class BrokerTest {
    @ParameterizedTest
    @CsvSource({"3.9.0, 3.9", "3.9.12, 3.9", "4.0.1, 4.0", "4.1.0, 4.1", "4.2.0, 4.2", "4.3.1, 4.3"})
    void releasesOfKnownLines(String version, String line) {
        assertEquals(line, Broker.line(version).orElseThrow().name);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "none", "", "3.8.1", "4.4.0", "4.30.0", "14.3.0", "4.3", "4.3.0-SNAPSHOT", "7.9.0-ccs", "4.1.0.redhat-1"
            })
    void everythingElseIsUnknown(String version) {
        assertTrue(Broker.line(version).isEmpty());
    }

    @Test
    void withoutKafkaOnTheClassPathThereIsNoVersion() throws Exception {
        assertEquals("none", Broker.version());
    }
}
