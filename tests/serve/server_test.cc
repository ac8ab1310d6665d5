// Requests and answers of clients that behave.
#include "support/http_case.h"

namespace weft::serve {
namespace {

class Http : public HttpCase {};

TEST_F(Http, AnswersOneRequestAfterTheOtherOnAConnection) {
    Start();
    RawClient client = Connect();
    for (int i = 0; i < 3; ++i) {
        const RawAnswer answer = client.Ask(Post("/echo?q=1", "body " + std::to_string(i)));
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(answer.body, "POST /echo q=1 body " + std::to_string(i));
        EXPECT_EQ(answer.Header("Content-Type"), "text/plain");
        EXPECT_FALSE(answer.Has("Connection"));
        EXPECT_TRUE(answer.Has("Date"));
        EXPECT_EQ(answer.Header("X-Request-Id").rfind("req_", 0), 0u);
    }
    EXPECT_EQ(server_->stats().accepted, 1u);
    EXPECT_EQ(server_->stats().requests, 3u);
    EXPECT_EQ(server_->open_exchanges(), 0u);
}

TEST_F(Http, StreamsInChunksThatGoOutAtOnce) {
    Start();
    RawClient client = Connect();
    RawAnswer whole = client.Ask(Get("/stream"));
    EXPECT_EQ(whole.body, "one two three");
    EXPECT_TRUE(whole.whole);

    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin(200, {{"Content-Type", "text/event-stream"}});
    exchange->Write("data: 1\n\n");
    EXPECT_TRUE(client.ReadUntil("9\r\ndata: 1\n\n\r\n"));
    exchange->Write("data: 2\n\n");
    EXPECT_TRUE(client.ReadUntil("9\r\ndata: 2\n\n\r\n"));
    EXPECT_EQ(client.came().find("0\r\n\r\n"), std::string::npos);
    exchange->End();
    EXPECT_TRUE(client.ReadUntil("\r\n0\r\n\r\n"));
    EXPECT_TRUE(Until([&] { return exchange->backlog_bytes() == 0; }));
    EXPECT_FALSE(exchange->gone());
}

}  // namespace
}  // namespace weft::serve
