/* Plugins that do what a check must bear. WHAT: 1 prints in a constructor and in the function of its version, 2 crashes in that function,
 * 3 ends the process in it, 4 never returns from it, 5 writes a file beside the library in its initialization, 6 needs a function that no
 * library has. With the options `login` and `access`, it answers with these numbers. */
#include "plugin.h"

void not_linked(void);

__attribute__((constructor)) static void begin(void)
{
    if(WHAT == 1) printf("printed by a constructor\n\377");
}

int mosquitto_plugin_version(int n, const int *supported)
{
    (void)n;
    (void)supported;
    if(WHAT == 1) puts("printed by the version");
    if(WHAT == 2) raise(11);
    if(WHAT == 3) exit(0);
    while(WHAT == 4) pause();
#if WHAT == 6
    not_linked();
#endif
    return 5;
}

static int answer(int event, void *data, void *userdata)
{
    (void)event;
    (void)data;
    return atoi(userdata);
}

int mosquitto_plugin_init(Plugin *identifier, void **userdata, struct mosquitto_opt *options, int n)
{
    (void)userdata;
    if(WHAT == 5) fclose(fopen(options[0].value, "w"));
    for(int i = 0; i < n; i++){
        if(strcmp(options[i].key, "login") == 0) mosquitto_callback_register(identifier, EVENT_BASIC_AUTH, answer, NULL, options[i].value);
        if(strcmp(options[i].key, "access") == 0) mosquitto_callback_register(identifier, EVENT_ACL_CHECK, answer, NULL, options[i].value);
    }
    return 0;
}
