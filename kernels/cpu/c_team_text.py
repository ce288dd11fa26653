"""The C text of the team of threads; `c_team` describes it."""

TEXT = """
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#ifdef __linux__
#include <sys/syscall.h>
long syscall(long number, ...);
#endif

#define MOST_HELPERS 256
#define MOST_CALLS 64
#define LAST (INT64_C(1) << 32)
#define WATCHED 1000000  /* nanoseconds that a helper watches before it sleeps: as long as Python takes after a large pass */
#define PATIENT 200000  /* nanoseconds that a caller watches before it sleeps */
#define EAGER 20000  /* nanoseconds after which a helper that watches lets other threads go first */

/* One function for the pieces from `begin` to `end` of a phase; ranges: begin and end of each piece, or null for piece and
   piece + 1. more: another function follows for the same pieces. */
typedef struct {
    void (*function)(void *const *, int64_t, int64_t);
    void *const *arrays;
    const int64_t *ranges;
    int64_t begin, end, more;
} team_step;

/* threads: at most so many take part; 0: all. */
typedef struct { const team_step *steps; int32_t pieces, threads; } team_phase;

/* What ran when: one entry for each piece. Times are nanoseconds; thread 0 is the caller, others are numbered helpers. */
typedef struct { int64_t phase, thread, begin, end; } team_entry;
typedef struct { _Atomic int64_t entries; int64_t now; team_entry entry[]; } team_log;

/* The phase that a caller shares. The caller takes its first pieces and helpers its last ones: so a thread finds in its own cache
   most of what it wrote in an earlier phase (ResNet-50 at batch 1 takes a tenth less). Taking a piece is to count `left` down by
   one, and to add LAST where a helper does it; afterwards the other numbers stay as they are until `done`, which counts the
   pieces that helpers have computed, says that this one is. A helper may come late, in a later phase or call: then it takes a
   piece of that. */
typedef struct {
    _Atomic int64_t left;  /* pieces, and LAST times those that helpers have taken */
    const team_step *steps;
    int64_t pieces, phase;
    team_log *log;  /* null where nobody asked */
    char apart[88];
    _Atomic int64_t done;
    _Atomic int64_t taken;
    char further[112];
} team_call;

/* What a helper may run as its caller: a record, which ends with a state. team_run takes it back, or takes part. */
enum { IDLE, OFFERED, ENDED };
static _Atomic(int64_t *) team_offered;

static pthread_mutex_t team_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t team_wake = PTHREAD_COND_INITIALIZER, team_ended = PTHREAD_COND_INITIALIZER;
static team_call team_calls[MOST_CALLS];
static _Atomic int64_t team_size, team_asleep, team_waiting, team_used;

static inline void team_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t team_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void team_piece(const team_step *s, int64_t k)
{
    while (k >= s->end) s++;
    for (;; s++) {
        const int64_t i = k - s->begin;
        if (s->ranges) s->function(s->arrays, s->ranges[2 * i], s->ranges[2 * i + 1]);
        else s->function(s->arrays, i, i + 1);
        if (!s->more) return;
    }
}

/* Compute a piece, and note in a log, if there is one, when. */
static inline void team_noted(const team_step *s, int64_t k, team_log *log, int64_t phase, int64_t thread)
{
    const int64_t begin = log ? team_now() : 0;
    team_piece(s, k);
    if (log) log->entry[atomic_fetch_add(&log->entries, 1)] = (team_entry){phase, thread, begin, team_now()};
}

/* Compute pieces until none is left, and return how many that were. */
static int64_t team_pieces(team_call *call)
{
    int64_t n = 0;
    for (int64_t left = atomic_load(&call->left); left % LAST;)
        if (atomic_compare_exchange_weak(&call->left, &left, left - 1)) {
            team_noted(call->steps, call->pieces - left % LAST - left / LAST, call->log, call->phase, 0);
            n++;
            left = atomic_load(&call->left);
        }
    return n;
}

/* Help every caller that has pieces left. Return how many were computed. */
static int64_t team_help(int64_t thread)
{
    int64_t n = 0;
    for (int64_t i = 0; i < atomic_load_explicit(&team_used, memory_order_relaxed); i++) {
        team_call *call = team_calls + i;
        int64_t left = atomic_load_explicit(&call->left, memory_order_relaxed);
        while (left % LAST)
            if (atomic_compare_exchange_weak(&call->left, &left, left - 1 + LAST)) {
                team_noted(call->steps, call->pieces - 1 - left / LAST, call->log, call->phase, thread);
                n++;
                atomic_fetch_add(&call->done, 1);
                if (atomic_load(&team_waiting)) {
                    pthread_mutex_lock(&team_lock);
                    pthread_cond_broadcast(&team_ended);
                    pthread_mutex_unlock(&team_lock);
                }
                left = atomic_load(&call->left);
            }
    }
    return n;
}

static int team_wanted(void)
{
    if (atomic_load(&team_offered)) return 1;
    for (int64_t i = 0; i < atomic_load(&team_used); i++) if (atomic_load(&team_calls[i].left) % LAST) return 1;
    return 0;
}

#ifdef __linux__
#define MOST_PROCESSORS 4096
static _Atomic int team_ids[MOST_HELPERS + 1];  /* the system's numbers of the helpers */
static _Atomic int team_at[MOST_HELPERS + 1];  /* one more than the processors on which they ran last; 0: unknown */

typedef struct { unsigned long bits[MOST_PROCESSORS / 8 / sizeof(long)]; } team_processors;

/* Of the C library, where it has them; else null. */
extern int pthread_attr_setaffinity_np(pthread_attr_t *, size_t, const team_processors *) __attribute__((weak));
extern int sched_getcpu(void) __attribute__((weak));

/* Find the processors that the caller may use, but for the one that it runs on. Return the set's bytes; 0: unknown, or none. */
static long team_others(team_processors *others)
{
    unsigned here = 0;
    memset(others, 0, sizeof *others);
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof *others, others);
    if (bytes <= 0 || syscall(SYS_getcpu, &here, 0, 0) || here >= MOST_PROCESSORS) return 0;
    others->bits[here / (8 * sizeof(long))] &= ~(1ul << here % (8 * sizeof(long)));
    for (size_t i = 0; i < sizeof *others / sizeof(long); i++) if (others->bits[i]) return bytes;
    return 0;
}

/* Forbid the processor that the caller runs on to the helpers, before they wake. The system likes to put a thread that wakes
   beside the one that wakes it, where it would wait for milliseconds: the caller does not stop. thread: the caller's number. */
static void team_apart(int64_t thread)
{
    team_processors others;
    const long bytes = team_others(&others);
    if (bytes) for (int64_t i = 1; i <= atomic_load(&team_size); i++)
        if (i != thread && atomic_load(team_ids + i)) syscall(SYS_sched_setaffinity, atomic_load(team_ids + i), bytes, &others);
}

static inline int team_processor(void) { return sched_getcpu ? sched_getcpu() + 1 : 0; }

/* Return whether a helper ran last on the caller's processor. The system moves one of the two away within milliseconds only. */
static int team_beside(int64_t thread)
{
    const int here = team_processor();
    for (int64_t i = 1; i <= atomic_load(&team_size); i++)
        if (here && i != thread && atomic_load_explicit(team_at + i, memory_order_relaxed) == here) return 1;
    return 0;
}

/* Note where a helper runs. */
static inline void team_note(int64_t thread)
{
    const int here = team_processor();
    if (here != atomic_load_explicit(team_at + thread, memory_order_relaxed)) atomic_store(team_at + thread, here);
}

/* The same as team_apart for helpers that are about to start. */
static void team_start_apart(pthread_attr_t *attributes)
{
    team_processors others;
    const long bytes = team_others(&others);
    if (bytes && pthread_attr_setaffinity_np) pthread_attr_setaffinity_np(attributes, bytes, &others);
}
#else
static void team_apart(int64_t thread) { (void)thread; }
static int team_beside(int64_t thread) { (void)thread; return 0; }
static inline void team_note(int64_t thread) { (void)thread; }
static void team_start_apart(pthread_attr_t *attributes) { (void)attributes; }
#endif

static int64_t team_take(int64_t thread);

static void *team_helper(void *number)
{
    const int64_t thread = (int64_t)(intptr_t)number;
#ifdef __linux__
    atomic_store(&team_ids[thread], (int)syscall(SYS_gettid));
#endif
    for (;;) {
        for (int64_t since = team_now(), now = since; now < since + WATCHED; now = team_now()) {
            int64_t n = team_take(thread);
            team_note(thread);
            for (int i = 0; i < 32; i++) {
                n += team_help(thread);
                team_pause();
            }
            if (n) since = team_now();
            else if (now > since + EAGER) sched_yield();
        }
        pthread_mutex_lock(&team_lock);
        atomic_fetch_add(&team_asleep, 1);
        if (!team_wanted()) pthread_cond_wait(&team_wake, &team_lock);
        atomic_fetch_sub(&team_asleep, 1);
        pthread_mutex_unlock(&team_lock);
    }
    return 0;
}

static void team_start(int64_t helpers)
{
    pthread_attr_t detached;
    pthread_mutex_lock(&team_lock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    team_start_apart(&detached);
    while (team_size < helpers && team_size < MOST_HELPERS) {
        pthread_t thread;
        void *const number = (void *)(intptr_t)(team_size + 1);
        if (pthread_create(&thread, &detached, team_helper, number)) break;  /* fewer helpers: the caller does the rest */
        team_size++;
    }
    pthread_attr_destroy(&detached);
    pthread_mutex_unlock(&team_lock);
}

static void team_rouse(int64_t thread)
{
    if (!atomic_load(&team_asleep)) {
        if (team_beside(thread)) team_apart(thread);
        return;
    }
    team_apart(thread);
    pthread_mutex_lock(&team_lock);
    pthread_cond_broadcast(&team_wake);
    pthread_mutex_unlock(&team_lock);
}

static void team_share(team_call *call, const team_phase *phase, team_log *log, int64_t number, int64_t thread)
{
    call->steps = phase->steps;
    call->pieces = phase->pieces;
    call->phase = number;
    call->log = log;
    atomic_store(&call->done, 0);
    atomic_store(&call->left, phase->pieces);
    team_rouse(thread);
    const int64_t others = phase->pieces - team_pieces(call);
    if (atomic_load(&call->done) == others) return;
    const int64_t until = team_now() + PATIENT;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load(&call->done) == others) return;
            team_pause();
        }
    } while (team_now() < until);
    pthread_mutex_lock(&team_lock);
    atomic_fetch_add(&team_waiting, 1);
    while (atomic_load(&call->done) != others) pthread_cond_wait(&team_ended, &team_lock);
    atomic_fetch_sub(&team_waiting, 1);
    pthread_mutex_unlock(&team_lock);
}

static int team_shared(const team_phase *phase, int64_t threads)
{
    return phase->pieces > 1 && (phase->threads && phase->threads < threads ? phase->threads : threads) > 1;
}

/* Return a place to share phases from; null if all are taken. */
static team_call *team_enter(int64_t threads)
{
    if (atomic_load(&team_size) < threads - 1) team_start(threads - 1);
    for (int64_t i = 0; i < MOST_CALLS; i++) {
        int64_t taken = 0;
        if (!atomic_compare_exchange_strong(&team_calls[i].taken, &taken, 1)) continue;
        for (int64_t used = atomic_load(&team_used); used <= i;)
            if (atomic_compare_exchange_weak(&team_used, &used, i + 1)) break;
        return team_calls + i;
    }
    return 0;
}

/* count phases, one after the other, with so many threads. The caller alone computes those of one piece. log: or null.
   thread: of the caller, 0 or a helper's. */
static void team_phases(const team_phase *phases, int64_t count, int64_t threads, team_log *log, int64_t thread)
{
    team_call *call = 0;
    for (int64_t i = 0; i < count && !call; i++)
        if (team_shared(phases + i, threads)) {
            call = team_enter(threads);
            team_rouse(thread);  /* now: they come in some 40 microseconds */
            break;
        }
    for (int64_t i = 0; i < count; i++) {
        if (call && team_shared(phases + i, threads)) team_share(call, phases + i, log, i, thread);
        else for (int64_t k = 0; k < phases[i].pieces; k++) team_noted(phases[i].steps, k, log, i, 0);
    }
    if (call) atomic_store(&call->taken, 0);
}

static inline _Atomic int64_t *team_state(int64_t *record) { return (_Atomic int64_t *)(record + 3); }

static void team_wake_all(void)
{
    if (!atomic_load(&team_asleep)) return;
    pthread_mutex_lock(&team_lock);
    pthread_cond_broadcast(&team_wake);
    pthread_mutex_unlock(&team_lock);
}

/* Run what is offered as its caller, and return 1; 0 if nothing is. */
static int64_t team_take(int64_t thread)
{
    int64_t *record = atomic_load_explicit(&team_offered, memory_order_relaxed);
    if (!record || !atomic_compare_exchange_strong(&team_offered, &record, 0)) return 0;
    team_phases((const team_phase *)record[0], record[1], record[2], 0, thread);
    atomic_store(team_state(record), ENDED);
    team_wake_all();
    return 1;
}

/* Let a helper begin with a record's phases while the caller goes on. team_run of the record must follow. */
void team_begin(int64_t *record)
{
    int64_t *nothing = 0;
    if (atomic_load(&team_size) < record[2] - 1) team_start(record[2] - 1);
    if (!atomic_load(&team_size)) return;
    atomic_store(team_state(record), OFFERED);
    if (atomic_compare_exchange_strong(&team_offered, &nothing, record)) team_rouse(0);
    else atomic_store(team_state(record), IDLE);
}

/* Help with what a helper has taken, until it has ended. Return 0, at once, if none has. */
static int team_joined(int64_t *record)
{
    int64_t *offered = record;
    if (atomic_compare_exchange_strong(&team_offered, &offered, 0) || !atomic_load(&team_size)) return 0;
    for (int64_t since = team_now(); atomic_load(team_state(record)) != ENDED;) {
        int64_t n = 0;
        for (int i = 0; i < 32 && atomic_load(team_state(record)) != ENDED; i++) {
            n += team_help(0);
            team_pause();
        }
        if (n) since = team_now();
        else if (team_now() > since + PATIENT) {
            pthread_mutex_lock(&team_lock);
            atomic_fetch_add(&team_asleep, 1);
            if (atomic_load(team_state(record)) != ENDED && !team_wanted()) pthread_cond_wait(&team_wake, &team_lock);
            atomic_fetch_sub(&team_asleep, 1);
            pthread_mutex_unlock(&team_lock);
        }
    }
    return 1;
}

/* Run the phases of a record: their address, their number, the number of threads, and the state. */
void team_run(int64_t *record)
{
    const int done = atomic_load(team_state(record)) != IDLE && team_joined(record);
    atomic_store(team_state(record), IDLE);
    if (!done) team_phases((const team_phase *)record[0], record[1], record[2], 0, 0);
}

/* The same; the record ends with the address of a log with room for all pieces. */
void team_logged(const int64_t *record)
{
    team_log *log = (team_log *)record[3];
    log->now = team_now();
    team_phases((const team_phase *)record[0], record[1], record[2], log, 0);
}

/* Call the function of a record: its address, its arrays, begin and end. */
void team_one(const int64_t *record)
{
    ((void (*)(void *const *, int64_t, int64_t))record[0])((void *const *)record[1], record[2], record[3]);
}

/* Call functions in turn, on arrays that stand in a record, and return where a new array lies.

   record: how many addresses lie in the new array; the NumPy object that it is, 0 if all addresses are known; the places of these
   addresses, where the distance from the array's beginning stands. Then for each function: its address, begin, end, the number of
   its arrays, these; behind the last one 0. */
int64_t team_given(int64_t *record)
{
    const int64_t many = record[0];
    int64_t base = 0;
    if (record[1]) {
        memcpy(&base, (const char *)(intptr_t)record[1] + OBJECT_HEAD, sizeof base);
        for (int64_t k = 0; k < many; k++) record[record[2 + k]] += base;
    }
    for (const int64_t *f = record + 2 + many; *f; f += 4 + f[3])
        ((void (*)(void *const *, int64_t, int64_t))*f)((void *const *)(f + 4), f[1], f[2]);
    return base;
}

/* Call one function for many pieces on threads: its address, their ranges and number, how many threads; then its arrays. */
void team_spread(const int64_t *record)
{
    const team_step step = {(void (*)(void *const *, int64_t, int64_t))record[0], (void *const *)(record + 4),
                            (const int64_t *)record[1], 0, record[2], 0};
    const team_phase phase = {&step, (int32_t)record[2], 0};
    team_phases(&phase, 1, record[3], 0, 0);
}

/* Forget the helpers: a forked child has none. */
void team_reset(const int64_t *unused)
{
    (void)unused;
    const pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    team_lock = lock;
    team_wake = team_ended = condition;
    team_size = team_asleep = team_waiting = team_used = 0;
    team_offered = 0;
    memset(team_calls, 0, sizeof team_calls);
#ifdef __linux__
    memset(team_ids, 0, sizeof team_ids);
    memset(team_at, 0, sizeof team_at);
#endif
}
"""
