/* Plugins that do what they should not. WHAT: 1 crashes in init, 2 calls from a thread of its own, 3 no plugin, 4 a name that does not
 * exist, 5 version 6, 6 no init. */
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

int mosquitto_plugin_init(Plugin *identifier, void **userdata, struct mosquitto_opt *options, int n)
{
    pthread_t thread;
    (void)identifier;
    (void)userdata;
    (void)options;
    (void)n;
    if(WHAT == 1) raise(11);
    if(WHAT == 2) return pthread_create(&thread, NULL, run, NULL);
#    if WHAT == 4
    return mosquitto_does_not_exist();
#    endif
    return 0;
}
#  endif
#endif
