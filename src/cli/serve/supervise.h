// `weft serve --restart`: a supervisor process runs the server as its child and restarts it after
// failures that may pass: an absent host, a lost rank, a crash. While no server runs, the
// supervisor answers at the server's port with 503 and the reason (serve/waiting.h).
//
// Supervisor and server communicate over a socket pair that the child inherits. The child reports
// when it is about to listen, when it serves, or why it cannot; the supervisor frees the port in
// time. A server of several models (serve/pool) communicates with its children in the same way.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/terminal/output.h"
#include "net/socket.h"
#include "serve/http/server.h"

namespace weft::cli {

// The server's end of the socket pair. Without a supervisor, every method does nothing.
// Thread: one.
class Supervisor {
  public:
    // Takes this process's supervisor from the environment, once.
    static Supervisor Take();

    bool present() const { return socket_.valid(); }
    // The port to listen at. If the user requested any port, the supervisor has chosen one.
    int port() const { return port_; }
    // The hosts of an earlier server; empty: this is the first one.
    const std::vector<std::string>& hosts() const { return hosts_; }

    // Returns after the supervisor has freed the port.
    void PromptForPort() const;
    void LogServing(int port, const std::vector<std::string>& hosts) const;
    // missing: the hosts that are known to be absent. Returns true if the supervisor will restart
    // the server and has logged the reason, so that this process only has to exit.
    bool ReportFailure(const Error& error, const std::vector<std::string>& missing) const;

  private:
    std::string Ask(const std::string& text) const;

    Fd socket_;
    int port_ = 0;
    std::vector<std::string> hosts_;
};

// A server that this process has started, and its end of the socket pair.
struct ServerProcess {
    pid_t pid = -1;
    Fd socket;
};
// Starts this program as a child with the command line `words` (OwnCommandLine). Its Supervisor has
// `port` and `hosts`. variables: NAME=VALUE, added to its environment. signals: its signal mask;
// null: the mask of the calling thread. orphan_signal: the child gets this signal when the calling
// thread ends. inherits: a descriptor that the child inherits under the same number; -1: none.
// Errors: kIo.
Result<ServerProcess> StartServer(std::vector<std::string> words, int port,
                                  const std::vector<std::string>& hosts,
                                  std::vector<std::string> variables, const sigset_t* signals,
                                  int orphan_signal, int inherits = -1);

// Runs the command line `words` (OwnCommandLine) as a child repeatedly, until the user requests a
// stop or the child fails permanently. Returns the exit status. Forwards SIGINT and SIGTERM to the
// child. SIGHUP stops both if `hangups` decides so; otherwise it is forwarded to a listening child.
// Errors: kUsage, kIo (the port).
Result<int> Supervise(std::vector<std::string> words, const serve::HttpOptions& http,
                      const HangupRule& hangups);

// The command line of this process, with the program's name first. Errors: kIo.
Result<std::vector<std::string>> OwnCommandLine();

// Whether a server that failed with `code` may succeed later. served: it served before.
bool MayPass(ErrorCode code, bool served);

}  // namespace weft::cli
