// `weft serve --restart`: a process that runs the server as its child and starts it again whenever
// it ends for a reason that may pass: a host that went away, a rank that was lost, a crash. While
// there is no server, it answers at the server's port with 503 and the reason (serve/waiting.h).
//
// The two talk over a socket pair that the child inherits: the child says when it is about to
// listen, that it serves, or why it can't; the supervisor frees the port in time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/output.h"
#include "net/socket.h"
#include "serve/http/server.h"

namespace weft::cli {

// The server's end. Without a supervisor every method does nothing.
// Thread: one.
class Supervisor {
  public:
    // Takes the supervisor of this process from the environment, once.
    static Supervisor Take();

    bool present() const { return socket_.valid(); }
    // Where to listen: the supervisor has found a port, where the user asked for any.
    int port() const { return port_; }
    // The hosts with which an earlier server ran; empty: this is the first one.
    const std::vector<std::string>& hosts() const { return hosts_; }

    // Returns once the supervisor has left the port.
    void AskForPort() const;
    void SayServing(const std::vector<std::string>& hosts) const;
    // missing: the hosts that are waited for, as far as they are known. True: the supervisor starts
    // the server again, and has said why; this process only has to end.
    bool SayFailed(const Error& error, const std::vector<std::string>& missing) const;

  private:
    std::string Ask(const std::string& text) const;

    net::Fd socket_;
    int port_ = 0;
    std::vector<std::string> hosts_;
};

// Runs this process's own command line as a child, again and again, until the user asks to stop or
// the child ends for a reason that will not pass. Returns the exit status. SIGINT and SIGTERM go to
// the child. SIGHUP asks both to stop where `hangups` says so; otherwise it goes to a child that
// listens. Errors: kUsage, kIo (the port).
Result<int> Supervise(const serve::HttpOptions& http, const HangupRule& hangups);

// The words with which this process was started, the program's name first. Errors: kIo.
Result<std::vector<std::string>> OwnCommandLine();

// Whether a server that ended with `code` may run later as it is asked to. served: it did before.
bool MayPass(ErrorCode code, bool served);

}  // namespace weft::cli
