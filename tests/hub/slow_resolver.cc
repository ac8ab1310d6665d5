// Simulates a name server that does not answer, for a program that is started with this library in
// LD_PRELOAD.
#include <netdb.h>
#include <unistd.h>

extern "C" int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) {
    ::sleep(30);
    return EAI_AGAIN;
}
