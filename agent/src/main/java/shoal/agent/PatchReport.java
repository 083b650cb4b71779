package shoal.agent;

import java.lang.management.ManagementFactory;
import java.util.List;
import javax.management.JMException;
import javax.management.ObjectName;

/** What was patched, or why nothing was: the attributes that all MBeans of the agent have. */
public abstract class PatchReport {
    private final List<String> patched;
    private final String reason;

    protected PatchReport(List<String> patched, String reason) {
        this.patched = patched;
        this.reason = reason;
    }

    /** {@code type}: in the MBean's name. */
    protected void register(String type) throws JMException {
        ManagementFactory.getPlatformMBeanServer().registerMBean(this, new ObjectName("shoal:type=" + type));
    }

    public boolean isActive() {
        return !patched.isEmpty();
    }

    public List<String> getPatchedMethods() {
        return patched;
    }

    public String getReason() {
        return reason;
    }
}
