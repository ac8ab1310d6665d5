// Simulates a name server that does not answer, for a program that is started with this library in
// LD_PRELOAD.
#include <netdb.h>
#include <unistd.h>

extern "C" int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) {
    constexpr char kSaid[] = "resolves a name\n";
    if (::write(STDERR_FILENO, kSaid, sizeof kSaid - 1) < 0) return EAI_AGAIN;
    for (;;) ::pause();
}
