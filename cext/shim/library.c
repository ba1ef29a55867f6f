/* Opens the library of a plugin and finds its interface version and its functions. Calls none of them but the one that returns the
 * version. Mosquitto's lines report what is missing.
 *
 * The file is examined before the C library maps it: the C library reports "No such file" about a library of another machine, and a
 * file that was cut off ends the process with SIGBUS.
 */
#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MACHINE_AT = 18, LOONGARCH = 258, PROGRAM_HEADERS_MOST = 1000 };
typedef struct { char text[300]; } Reason;

static const struct { int number; const char *name; } MACHINES[] = {
    {EM_386, "x86"}, {EM_X86_64, "x86-64"}, {EM_ARM, "ARM"}, {EM_AARCH64, "AArch64"}, {EM_RISCV, "RISC-V"}, {EM_PPC, "PowerPC"},
    {EM_PPC64, "PowerPC"}, {EM_S390, "S/390"}, {EM_MIPS, "MIPS"}, {LOONGARCH, "LoongArch"},
};

/* Writes the machine that a header is for, such as "AArch64 (64-bit)". */
static void machine_put(char *out, size_t room, const unsigned char *header)
{
    bool is_big = header[EI_DATA] == ELFDATA2MSB;
    int number = is_big ? header[MACHINE_AT] << 8 | header[MACHINE_AT + 1] : header[MACHINE_AT + 1] << 8 | header[MACHINE_AT];
    const char *bits = header[EI_CLASS] == ELFCLASS32 ? "32-bit" : "64-bit", *order = is_big ? ", big-endian" : "";
    for(size_t i = 0; i < sizeof(MACHINES) / sizeof(MACHINES[0]); i++){
        if(MACHINES[i].number == number){
            snprintf(out, room, "%s (%s%s)", MACHINES[i].name, bits, order);
            return;
        }
    }
    snprintf(out, room, "the machine with ELF's number %d (%s%s)", number, bits, order);
}

static bool of_this_machine(const unsigned char *header, Reason *why)
{
    char theirs[80], ours[80];
    Dl_info shim;
    if(dladdr(MACHINES, &shim) == 0 || shim.dli_fbase == NULL) return true;
    if(memcmp(header + EI_CLASS, (unsigned char *)shim.dli_fbase + EI_CLASS, 2) == 0
            && memcmp(header + MACHINE_AT, (unsigned char *)shim.dli_fbase + MACHINE_AT, 2) == 0){
        return true;
    }
    machine_put(theirs, sizeof(theirs), header);
    machine_put(ours, sizeof(ours), shim.dli_fbase);
    snprintf(why->text, sizeof(why->text), "the library is for %s, but this machine is %s; compile the plugin for this machine", theirs, ours);
    return false;
}

static void cut_off(Reason *why, size_t size, size_t need)
{
    snprintf(why->text, sizeof(why->text), "the file is cut off: it has %zu bytes and needs at least %zu; copy or compile it again", size, need);
}

/* Returns false if bytes that the C library would map are missing. */
static bool is_whole(int fd, const ElfW(Ehdr) *header, size_t size, Reason *why)
{
    size_t need = header->e_phoff + (size_t)header->e_phnum * sizeof(ElfW(Phdr));
    ElfW(Phdr) *parts;
    if(header->e_phnum > PROGRAM_HEADERS_MOST || header->e_phentsize != sizeof(*parts)) return true;    /* the C library refuses it */
    parts = calloc((size_t)header->e_phnum + 1, sizeof(*parts));
    if(parts == NULL) return true;
    if(need <= size && pread(fd, parts, header->e_phnum * sizeof(*parts), (off_t)header->e_phoff) > 0){
        for(int i = 0; i < header->e_phnum; i++){
            size_t end = parts[i].p_offset + parts[i].p_filesz;
            if(parts[i].p_type == PT_LOAD && end > need) need = end;
        }
    }
    free(parts);
    if(need <= size) return true;
    cut_off(why, size, need);
    return false;
}

static bool is_library(int fd, Reason *why)
{
    ElfW(Ehdr) header;
    struct stat about;
    ssize_t n;
    memset(&header, 0, sizeof(header));
    if(fstat(fd, &about) != 0) return true;
    if(!S_ISREG(about.st_mode)){        /* a pipe would hold the reader */
        snprintf(why->text, sizeof(why->text), "it is no file, but a %s", S_ISDIR(about.st_mode) ? "folder" : "device, pipe or socket");
        return false;
    }
    n = pread(fd, &header, sizeof(header), 0);
    if(n < 0) return true;
    if(memcmp(header.e_ident, ELFMAG, SELFMAG) != 0){
        snprintf(why->text, sizeof(why->text), "%s", n == 0 ? "the file is empty" : "it is no library of Linux: it has no ELF header");
        return false;
    }
    if(n >= MACHINE_AT + 2 && !of_this_machine(header.e_ident, why)) return false;
    if(n < (ssize_t)sizeof(header)){
        cut_off(why, (size_t)n, sizeof(header));
        return false;
    }
    if(header.e_type == ET_REL){
        snprintf(why->text, sizeof(why->text), "it is an object file; compile it with -shared instead of -c");
        return false;
    }
    return is_whole(fd, &header, (size_t)about.st_size, why);
}

/* Returns why a file cannot be a library of this process; NULL if no reason is known. */
static const char *unusable(const char *path, Reason *why)
{
    int fd = strchr(path, '/') == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is_good;
    if(fd < 0) return NULL;             /* the C library looks for it elsewhere, or reports why it cannot be opened */
    is_good = is_library(fd, why);
    close(fd);
    return is_good ? NULL : why->text;
}

static int version_of(Plugin *p)
{
    static const int SUPPORTED[] = {5, 4, 3, 2};
    int (*newer)(int, const int *), (*older)(void);
    *(void **)&newer = dlsym(p->library, "mosquitto_plugin_version");
    if(newer != NULL) return newer(4, SUPPORTED);
    *(void **)&older = dlsym(p->library, "mosquitto_auth_plugin_version");
    if(older != NULL) return older();
    line_put(LEVEL_ERROR, "Error: Unable to load auth plugin function mosquitto_auth_plugin_version() or mosquitto_plugin_version().");
    line_put(LEVEL_ERROR, "Load error: %s", dlerror());
    return 0;
}

/* Returns 0, or the exit status of the broker. */
int library_open(Plugin *p)
{
    Reason buffer;
    const char *why = unusable(p->path, &buffer);
    if(why == NULL){
        p->library = dlopen(p->path, RTLD_NOW | RTLD_GLOBAL);
        if(p->library == NULL) why = dlerror();
    }
    if(p->library == NULL){
        line_put(LEVEL_ERROR, "Error: Unable to load plugin \"%s\".", p->path);
        line_put(LEVEL_ERROR, "Load error: %s", why);
        return ERR_UNKNOWN;
    }
    p->version = version_of(p);
    if(p->version == 0) return ERR_UNKNOWN;
    if(p->version < 2 || p->version > 5){
        line_put(LEVEL_ERROR, "Error: Unsupported auth plugin version (got %d, expected 5).", p->version);
        return ERR_UNKNOWN;
    }
    return version_functions(p);
}

/* Reports whether a library is a plugin, without its initialization: 0, or lines say why it is not. The library stays loaded. */
EXPORT int mosq_shim_check(const char *path)
{
    Plugin *p = calloc(1, sizeof(*p));
    if(p == NULL || (p->path = strdup(path)) == NULL) return ERR_NOMEM;
    return library_open(p);
}
