// WaitingServer: answers while the real server is not running yet. /live returns 200, the page's
// files are served, and everything else gets 503 with the reason.
// Thread: any.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "serve/http/server.h"

namespace weft::serve {

class WaitingServer {
  public:
    // why: reason for clients, such as "waiting for host b". Errors: those of HttpServer.
    static Result<std::unique_ptr<WaitingServer>> Start(HttpOptions options,
                                                        const std::string& why);
    int port() const { return http_->port(); }
    std::string url() const { return http_->url(); }

  private:
    explicit WaitingServer(std::string why) : why_(std::move(why)) {}
    void Handle(Exchange& exchange) const;

    const std::string why_;
    std::unique_ptr<HttpServer> http_;
};

}  // namespace weft::serve
