import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A thread that polls a Reader continuously, which keeps it in its group, and runs tasks between polls. */
final class Loop {
    interface Task {
        List<String> run(Reader reader) throws Exception;
    }

    private static final class Asked extends CompletableFuture<List<String>> {
        final Task task;

        Asked(Task task) {
            this.task = task;
        }
    }

    private final Reader reader;
    private final boolean commits;
    private final Thread thread;
    private final BlockingQueue<Asked> asked = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> polled = new LinkedBlockingQueue<>();
    private volatile boolean ended = false;

    Loop(Reader reader, Properties properties) throws Exception {
        this.reader = reader;
        this.commits = "true".equals(properties.remove("commits"));
        reader.open(properties);
        thread = new Thread(this::run);
        thread.setDaemon(true);
        thread.start();
    }

    List<String> call(Task task) throws Throwable {
        Asked one = new Asked(task);
        asked.add(one);
        try {
            return one.get(60, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw error.getCause();
        }
    }

    /** Up to `count` records, or fewer after `millis`; an exception of a poll is in the list as "error ...". */
    List<String> take(int count, long millis) throws InterruptedException {
        List<String> taken = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        while (taken.size() < count) {
            String one = polled.poll(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            if (one == null) break;
            taken.add(one);
        }
        return taken;
    }

    void close() throws Exception {
        ended = true;
        thread.join(60_000);
    }

    private void run() {
        while (!ended) {
            for (Asked one = asked.poll(); one != null; one = asked.poll()) answer(one);
            try {
                poll();
            } catch (Throwable error) {
                error.printStackTrace();
                polled.add("error " + error.toString().replace('\n', ' '));
            }
        }
        try {
            reader.close();
        } catch (Throwable error) {
            error.printStackTrace();
        }
    }

    private void poll() throws Exception {
        List<String> records = reader.poll(50);
        try {
            if (commits && !records.isEmpty()) reader.commitPolled();
        } finally {
            polled.addAll(records); // even if the commit fails: the consumer does not return them again
        }
    }

    private void answer(Asked one) {
        try {
            one.complete(one.task.run(reader));
        } catch (Throwable error) {
            one.completeExceptionally(error);
        }
    }
}
