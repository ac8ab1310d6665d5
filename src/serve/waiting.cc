#include "serve/waiting.h"

#include "serve/api/gate.h"
#include "serve/api/status.h"
#include "serve/page.h"

namespace weft::serve {

Result<std::unique_ptr<WaitingServer>> WaitingServer::Start(HttpOptions options,
                                                            const std::string& why) {
    std::unique_ptr<WaitingServer> waiting(new WaitingServer(why));
    const WaitingServer* self = waiting.get();
    options.judge_head = [self](const HttpRequest& head) {
        return head.method == "POST" ? HeadVerdict{NotServing(head.path, self->why_, "waiting")}
                                     : JudgeHead(head, nullptr);
    };
    WEFT_ASSIGN(waiting->http_,
                HttpServer::Start(std::move(options), [self](std::shared_ptr<Exchange> exchange) {
                    self->Handle(*exchange);
                }));
    return waiting;
}

void WaitingServer::Handle(Exchange& exchange) const {
    if (ServePage(exchange)) return;
    const std::string& path = exchange.request().path;
    if (path == kLivePath) return SendAlive(exchange);
    exchange.Send(503, {{"Content-Type", "application/json"}, {"Retry-After", "5"}},
                  NotServing(path, why_, "waiting").body);
}

}  // namespace weft::serve
