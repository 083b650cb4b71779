package shoal.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.reflect.Method;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class MembersTest {
    /** Like a class of Kafka. */
    static final class Example {
        static final int CONSTANT = 1;
        private final int number;
        private final String text;

        Example(int number, String text) {
            this.number = number;
            this.text = text;
        }

        private String text() {
            return text + number;
        }

        private static long twice(long value) {
            return 2 * value;
        }
    }

    private static void unexpected(org.junit.jupiter.api.function.Executable lookup) {
        assertThrows(Members.Unexpected.class, lookup);
    }

    @Test
    void membersAreFoundByExactTypes() throws Throwable {
        Example example = new Example(7, "x");
        Method text = Members.method(Example.class, "text", String.class);
        assertEquals("x7", (String) Members.handle(text).invoke(example));
        Method twice = Members.method(Example.class, "twice", long.class, long.class);
        assertEquals(8L, (long) Members.handle(twice).invoke(4L));
        assertEquals(7, (int) Members.getter(Members.field(Example.class, "number", int.class)).invoke(example));
        Example made = (Example) Members.handle(Members.onlyConstructor(Example.class)).invoke(1, "y");
        assertEquals("y1", made.text());
    }

    @Test
    void fieldsOfInstancesInTheirOrder() {
        List<String> names =
                Members.fields(Example.class).stream().map(field -> field.getName()).collect(Collectors.toList());
        assertEquals(List.of("number", "text"), names);
    }

    @Test
    void componentIsTheAccessorWhereThereIsOne() throws Throwable {
        Example example = new Example(7, "x");
        assertEquals("x7", (String) Members.component(Example.class, "text", String.class).invoke(example));
        assertEquals(7, (int) Members.component(Example.class, "number", int.class).invoke(example));
    }

    @Test
    void everythingElseIsUnexpected() {
        unexpected(() -> Members.type("org.apache.kafka.Missing"));
        unexpected(() -> Members.type("java.lang.String")); // not from the class path
        unexpected(() -> Members.method(Example.class, "text", Object.class));
        unexpected(() -> Members.method(Example.class, "twice", long.class, int.class));
        unexpected(() -> Members.method(Example.class, "thrice", long.class, long.class));
        unexpected(() -> Members.field(Example.class, "number", long.class));
        unexpected(() -> Members.field(Example.class, "missing", long.class));
        unexpected(() -> Members.constructor(Example.class, int.class));
    }
}
