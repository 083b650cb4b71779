import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Writes record sets with an old client. On stdin "set MAGIC CODEC OFFSET COUNT" and COUNT lines "TIMESTAMP KEY VALUE"
 * (see Words); on stdout a line per set: "x" and its bytes in hex. The argument is the Maker of a version.
 */
public final class Written {
    static final class Message {
        final long timestamp;
        final byte[] key;
        final byte[] value;

        Message(String line) {
            String[] words = line.split(" ");
            timestamp = Long.parseLong(words[0]);
            key = Words.bytes(words[1]);
            value = Words.bytes(words[2]);
        }
    }

    interface Maker {
        /** `codec`: the bits of the attributes. */
        ByteBuffer make(int magic, int codec, long offset, List<Message> messages) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Maker maker = (Maker) Class.forName(args[0]).getDeclaredConstructor().newInstance();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            List<Message> messages = new ArrayList<>();
            for (int left = Integer.parseInt(words[4]); left > 0; left--) messages.add(new Message(in.readLine()));
            int magic = Integer.parseInt(words[1]);
            int codec = Integer.parseInt(words[2]);
            ByteBuffer set = maker.make(magic, codec, Long.parseLong(words[3]), messages);
            byte[] bytes = new byte[set.remaining()];
            set.get(bytes);
            out.println(Words.word(bytes));
            out.flush();
        }
    }
}
