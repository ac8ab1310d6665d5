// libFuzzer target: any bytes as what arrives on a control port. The first byte chooses whether the
// rest is read as plain or as sealed frames. A decoded message must encode to the same bytes. A
// listener's and a caller's handshake get every frame and must never succeed.
//     build-fuzz/fuzz/control_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/control
#include <cstdlib>

#include "cluster/join/handshake.h"

namespace {

using namespace weft::cluster;

template <typename Message>
void MustBeSame(View payload) {
    const weft::Result<Message> message = Decode<Message>(payload);
    if (!message.ok()) return;
    const Bytes again = Encode(*message);
    if (!std::equal(again.begin(), again.end(), payload.begin(), payload.end())) std::abort();
}

void DecodeAny(FrameType type, View payload) {
    switch (type) {
        case FrameType::kHello: return MustBeSame<HelloMessage>(payload);
        case FrameType::kChallenge: return MustBeSame<ChallengeMessage>(payload);
        case FrameType::kProof:
        case FrameType::kWelcome: return MustBeSame<ProofMessage>(payload);
        case FrameType::kRefuse: return MustBeSame<RefuseMessage>(payload);
        case FrameType::kAssign: return MustBeSame<AssignMessage>(payload);
        case FrameType::kHeartbeat: return MustBeSame<HeartbeatMessage>(payload);
        case FrameType::kRelay: return MustBeSame<RelayMessage>(payload);
        case FrameType::kValue: return MustBeSame<ValueMessage>(payload);
        case FrameType::kResult: return MustBeSame<ResultMessage>(payload);
        case FrameType::kFailure:
        case FrameType::kVerdict: return MustBeSame<VerdictMessage>(payload);
        case FrameType::kReady: return MustBeSame<ReadyMessage>(payload);
        case FrameType::kExamine: return MustBeSame<ExamineMessage>(payload);
        case FrameType::kExamined: return MustBeSame<ExaminedMessage>(payload);
        case FrameType::kEnd:
        case FrameType::kEndAck: break;
    }
    const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
    const auto strings = UnpackStrings(text);
    if (strings.ok() && PackStrings(*strings) != text) std::abort();
    (void)UnpackValues(text);
    (void)DecodeSession(payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const bool sealed = (data[0] & 1) != 0;
    View left = std::as_bytes(std::span(data, size)).subspan(1);
    const Bytes key(32, std::byte{7});
    ServerHandshake server(key);
    ClientHandshake client("worker", key, 1000);
    Session session = MakeSessionPair(1000).first;
    while (true) {
        size_t consumed = 0;
        const auto frame = ParseFrame(left, sealed, &consumed);
        if (!frame.ok() || !frame->has_value()) return 0;
        if (consumed == 0 || consumed > left.size()) std::abort();
        DecodeAny((*frame)->type, (*frame)->payload);
        if (sealed && OpenFrame(session, **frame).ok()) std::abort();
        if (server.On(**frame).done) std::abort();
        if (client.On(**frame).ok() && client.done()) std::abort();
        left = left.subspan(consumed);
    }
}
