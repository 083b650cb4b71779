package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * Looks up classes of Kafka and their members by exact types, without initialising any class. Any difference throws
 * {@link Unexpected}, which the start-up reports before anything is patched. Handles have Object in place of each
 * reference type.
 */
public final class Members {
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();

    /** A class or member of Kafka is missing, or differs from what is expected. */
    public static final class Unexpected extends RuntimeException {
        private static final long serialVersionUID = 1L;

        Unexpected(String message) {
            super(message);
        }
    }

    private Members() {}

    public static Class<?> type(String name) {
        Class<?> found;
        try {
            found = Class.forName(name, false, Broker.LOADER);
        } catch (ClassNotFoundException e) {
            throw new Unexpected("there is no class " + name);
        }
        if (found.getClassLoader() != Broker.LOADER) {
            throw new Unexpected(name + " is not loaded from the class path");
        }
        return found;
    }

    /** A class in the package of MemoryRecords, which moved in 4.3. */
    public static Class<?> recordType(String simpleName) {
        return type(Broker.current().recordPackage + "." + simpleName);
    }

    public static Method method(Class<?> owner, String name, Class<?> result, Class<?>... parameters) {
        Method method = method(owner, name, List.of(parameters)::equals);
        return typed(method, method.getReturnType(), result);
    }

    /** The only method with this name and matching parameters; any result. */
    public static Method method(Class<?> owner, String name, Predicate<List<Class<?>>> parameters) {
        return only(
                owner,
                name,
                Arrays.stream(owner.getDeclaredMethods())
                        .filter(m -> m.getName().equals(name) && parameters.test(List.of(m.getParameterTypes())))
                        .filter(m -> !m.isBridge())
                        .collect(Collectors.toList()));
    }

    public static Field field(Class<?> owner, String name, Class<?> type) {
        Field field = only(
                owner,
                name,
                Arrays.stream(owner.getDeclaredFields())
                        .filter(f -> f.getName().equals(name))
                        .collect(Collectors.toList()));
        return typed(field, field.getType(), type);
    }

    /** The instance fields of a class, in order of declaration. */
    static List<Field> fields(Class<?> owner) {
        return Arrays.stream(owner.getDeclaredFields())
                .filter(field -> !Modifier.isStatic(field.getModifiers()))
                .map(field -> typed(field, field.getType(), field.getType()))
                .collect(Collectors.toList());
    }

    /** The only constructor of a class. */
    static Constructor<?> onlyConstructor(Class<?> owner) {
        return only(owner, "<init>", List.of(owner.getDeclaredConstructors()));
    }

    public static Constructor<?> constructor(Class<?> owner, Class<?>... parameters) {
        return only(
                owner,
                "<init>",
                Arrays.stream(owner.getDeclaredConstructors())
                        .filter(c -> Arrays.equals(c.getParameterTypes(), parameters))
                        .collect(Collectors.toList()));
    }

    public static MethodHandle handle(Method method) {
        return unreflected(() -> LOOKUP.unreflect(opened(method)));
    }

    public static MethodHandle getter(Field field) {
        return unreflected(() -> LOOKUP.unreflectGetter(opened(field)));
    }

    public static MethodHandle handle(Constructor<?> constructor) {
        return unreflected(() -> LOOKUP.unreflectConstructor(opened(constructor)));
    }

    /** Reads a component of a result class: the accessor if it is a record, otherwise the public field. */
    public static MethodHandle component(Class<?> owner, String name, Class<?> type) {
        boolean accessor = Arrays.stream(owner.getDeclaredMethods()).anyMatch(method -> method.getName().equals(name));
        return accessor ? handle(method(owner, name, type)) : getter(field(owner, name, type));
    }

    private static <M> M only(Class<?> owner, String name, List<M> members) {
        if (members.size() != 1) {
            throw new Unexpected(
                    owner.getName() + " has " + members.size() + " matching members " + name + ", expected 1");
        }
        return members.get(0);
    }

    private static <M> M typed(M member, Class<?> type, Class<?> expected) {
        if (type != expected) {
            throw new Unexpected(member + " is not of type " + expected.getName());
        }
        return member;
    }

    private static <M extends AccessibleObject> M opened(M member) {
        member.setAccessible(true);
        return member;
    }

    private interface Unreflection {
        MethodHandle handle() throws IllegalAccessException;
    }

    private static MethodHandle unreflected(Unreflection unreflection) {
        try {
            MethodHandle handle = unreflection.handle();
            return handle.asType(handle.type().erase()); // Kafka's types are not known to the compiler
        } catch (IllegalAccessException e) {
            throw new Unexpected(e.getMessage());
        }
    }
}
