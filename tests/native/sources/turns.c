/* Logs the process in which it is initialized and cleaned up. */
#include "plugin.h"

int mosquitto_plugin_version(int n, const int *supported)
{
    (void)n;
    (void)supported;
    return 5;
}

int mosquitto_plugin_init(Plugin *identifier, void **userdata, struct mosquitto_opt *options, int n)
{
    (void)identifier;
    (void)userdata;
    (void)options;
    (void)n;
    mosquitto_log_printf(LEVEL_INFO, "turns: init in %d", (int)getpid());
    return ERR_SUCCESS;
}

int mosquitto_plugin_cleanup(void *userdata, struct mosquitto_opt *options, int n)
{
    (void)userdata;
    (void)options;
    (void)n;
    mosquitto_log_printf(LEVEL_INFO, "turns: cleanup in %d", (int)getpid());
    return ERR_SUCCESS;
}
