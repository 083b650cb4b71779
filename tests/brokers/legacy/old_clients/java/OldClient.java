import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/**
 * A line-based Java client: requests on stdin; on stdout, for each except "send", lines of data ("| ...") and "ok" or
 * "error ..." (tests/brokers/legacy/old_clients/client.py). It is compiled against each old version; the arguments are
 * the classes of its Writer and its Reader.
 */
public final class OldClient {
    private final Class<?> writer;
    private final Class<?> reader;
    private final PrintStream out;
    private final Map<String, Writer> writers = new HashMap<>();
    private final Map<String, Loop> readers = new HashMap<>();

    private OldClient(String writer, String reader, PrintStream out) throws ClassNotFoundException {
        this.writer = Class.forName(writer);
        this.reader = Class.forName(reader);
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        System.setOut(System.err);
        new OldClient(args[0], args[1], out).run();
        System.exit(0);
    }

    private void run() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("send")) {
                byte[] key = Words.bytes(words[5]);
                byte[] value = Words.bytes(words[6]);
                writers.get(words[1]).send(words[2], integer(words[3]), Long.parseLong(words[4]), key, value);
                continue;
            }
            try {
                for (String answer : answer(words)) out.println("| " + answer);
                out.println("ok");
            } catch (Throwable error) {
                error.printStackTrace();
                out.println(errorLine(error));
            }
            out.flush();
        }
    }

    private List<String> answer(String[] words) throws Throwable {
        String name = words[1];
        switch (words[0]) {
            case "producer": return openWriter(name, properties(words));
            case "flush": return writers.get(name).flush();
            case "consumer": return openReader(name, properties(words));
            case "take": return readers.get(name).take(integer(words[2]), Long.parseLong(words[3]));
            case "close": return close(name);
            default: return readers.get(name).call(reader -> asked(reader, words));
        }
    }

    private static List<String> asked(Reader reader, String[] words) throws Exception {
        switch (words[0]) {
            case "subscribe": reader.subscribe(words[2]); return new ArrayList<>();
            case "assigned": return reader.assigned();
            case "assign":
                reader.assign(words[2], integer(words[3]), Long.parseLong(words[4]));
                return new ArrayList<>();
            case "commit":
                reader.commit(words[2], integer(words[3]), Long.parseLong(words[4]));
                return new ArrayList<>();
            case "committed": return one(reader.committed(words[2], integer(words[3])));
            case "offset": return one(reader.offset(words[2], integer(words[3]), words[4]));
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private List<String> openWriter(String name, Properties properties) throws Exception {
        Writer opened = (Writer) writer.getDeclaredConstructor().newInstance();
        opened.open(properties);
        writers.put(name, opened);
        return new ArrayList<>();
    }

    private List<String> openReader(String name, Properties properties) throws Exception {
        readers.put(name, new Loop((Reader) reader.getDeclaredConstructor().newInstance(), properties));
        return new ArrayList<>();
    }

    private List<String> close(String name) throws Exception {
        if (writers.containsKey(name)) writers.remove(name).close();
        else readers.remove(name).close();
        return new ArrayList<>();
    }

    private static Properties properties(String[] words) {
        Properties properties = new Properties();
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            int at = word.indexOf('=');
            properties.setProperty(word.substring(0, at), word.substring(at + 1));
        }
        return properties;
    }

    private static List<String> one(Object value) {
        return Arrays.asList(String.valueOf(value));
    }

    private static int integer(String word) {
        return Integer.parseInt(word);
    }

    static String errorLine(Throwable error) {
        return "error " + error.toString().replace('\n', ' ').replace('\r', ' ');
    }
}
