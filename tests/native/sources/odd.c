/* Plugins that do what they should not. WHAT: 1 crashes in init, 2 calls from a thread of its own, 3 no plugin, 4 a name that does not
 * exist, 5 version 6, 6 no init, 7 waits in a callback for a thread of its own that registers a callback, 8 frees memory twice, 9 logs from a
 * thread of its own without an end, 10 wants its next tick never, 11 never returns from a callback, 12 never returns from init. */
#include "plugin.h"

#if WHAT == 3
int nothing(void) { return 0; }
#else
int mosquitto_plugin_version(int n, const int *supported) { (void)n; (void)supported; return WHAT == 5 ? 6 : 5; }
#  if WHAT != 6

#    if WHAT == 4
int mosquitto_does_not_exist(void);
#    endif

static void *run(void *unused)
{
    (void)unused;
    for(int i = 0; i < 1000; i++){
        say("from/thread", "hello");
        mosquitto_apply_on_all_clients(NULL, NULL);
        mosquitto_client("nobody");
        usleep(1000);
    }
    return NULL;
}

static void *flood(void *unused)
{
    (void)unused;
    for(;;) mosquitto_log_printf(LEVEL_DEBUG, "flood");
}

static int on_tick(int event, void *data, void *userdata)
{
    (void)event;
    (void)userdata;
    ((struct mosquitto_evt_tick *)data)->next_s = INT64_MAX;
    mosquitto_log_printf(LEVEL_NOTICE, "tick");
    return 0;
}

static Plugin *me;

static int on_disconnect(int event, void *data, void *userdata)
{
    (void)event;
    (void)data;
    (void)userdata;
    say("from/thread", "gone");
    return 0;
}

static void *change(void *unused)
{
    (void)unused;
    mosquitto_callback_unregister(me, EVENT_DISCONNECT, on_disconnect, NULL);
    mosquitto_callback_register(me, EVENT_DISCONNECT, on_disconnect, NULL, NULL);
    return NULL;
}

static int on_connect(int event, void *data, void *userdata)
{
    pthread_t thread;
    char *volatile twice = malloc(4000);    /* else the compiler removes it */
    while(WHAT == 11) pause();
    (void)event;
    (void)data;
    (void)userdata;
    if(WHAT == 8) free(twice);
    free(twice);
    return pthread_create(&thread, NULL, change, NULL) || pthread_join(thread, NULL);
}

int mosquitto_plugin_init(Plugin *identifier, void **userdata, struct mosquitto_opt *options, int n)
{
    pthread_t thread;
    me = identifier;
    (void)userdata;
    (void)options;
    (void)n;
    if(WHAT == 1) raise(11);
    while(WHAT == 12) pause();
    if(WHAT == 2) return pthread_create(&thread, NULL, run, NULL);
    if(WHAT == 9) return pthread_create(&thread, NULL, flood, NULL);
    if(WHAT == 10) return mosquitto_callback_register(me, EVENT_TICK, on_tick, NULL, NULL);
    if(WHAT >= 7){
        mosquitto_callback_register(me, EVENT_DISCONNECT, on_disconnect, NULL, NULL);
        return mosquitto_callback_register(me, EVENT_CONNECT, on_connect, NULL, NULL);
    }
#    if WHAT == 4
    return mosquitto_does_not_exist();
#    endif
    return 0;
}
#  endif
#endif
