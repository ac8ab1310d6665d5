// GET /slots and POST /slots/ID. See llama/slots.h.
#include <utility>

#include "serve/api/api.h"
#include "serve/api/openai/input_items.h"

namespace weft::serve {
namespace {

const Headers kJsonHeaders{{"Content-Type", "application/json"}};

// The action counts as a running request of its key until its end.
void KeepTicket(std::shared_ptr<Limiter::Ticket> ticket, engine::SlotRequest& slot) {
    slot.done = [ticket = std::move(ticket), done = std::move(slot.done)](
                    const Result<engine::SlotRequest::Done>& result) mutable {
        ticket.reset();  // before the client gets the answer
        done(result);
    };
}

}  // namespace

void Api::ListSlots(Exchange& exchange) {
    const HttpRequest& request = exchange.request();
    const std::string owner = OwnerOf(request);
    if (!QueryValue(request.query, "fail_on_no_slot").empty() && !slots_->HasIdle(owner)) {
        return Refuse(exchange, {503, "no slot available", "", "no_slot"});
    }
    exchange.Send(200, kJsonHeaders, Dump(slots_->Describe(owner)));
}

// Computes what the prefix cache has lost of a slot's text before its pages are saved.
class Api::SlotPrefill final : public engine::Listener {
  public:
    SlotPrefill(engine::Engine& engine, engine::SlotRequest slot,
                std::shared_ptr<Limiter::Ticket> ticket)
        : engine_(engine), slot_(std::move(slot)), ticket_(std::move(ticket)) {}
    void OnToken(const engine::GeneratedToken& /*token*/, std::string_view /*text*/) override {}
    void OnEnd(std::string_view /*rest*/, const Result<engine::Ending>& ending) override {
        if (ending.ok() && ticket_ != nullptr) ticket_->Settle(ending->prompt_tokens);
        ticket_.reset();  // before the answer
        if (!ending.ok()) return slot_.done(ending.error());
        engine_.Submit(std::move(slot_));
    }

  private:
    engine::Engine& engine_;
    engine::SlotRequest slot_;
    std::shared_ptr<Limiter::Ticket> ticket_;
};

void Api::SaveSlot(const std::shared_ptr<Exchange>& exchange, SlotTable::Text text,
                   engine::SlotRequest slot, Admitted admitted) {
    if (text.tokens.empty()) {  // as in llama-server, this saves an empty slot
        if (admitted.ticket != nullptr) admitted.ticket->Settle(0);
        KeepTicket(std::move(admitted.ticket), slot);
        return served_.engine->Submit(std::move(slot));
    }
    // Both copies of the text count, because the request's body is small.
    if (const auto refusal = exchange->Hold(2 * sizeof(int32_t) * text.tokens.size())) {
        return Refuse(*exchange, {refusal->status, refusal->message, "", refusal->code});
    }
    slot.tokens = text.tokens;
    slot.adapter = text.adapter;
    engine::Request prefill;
    prefill.prompt = std::move(text.tokens);
    prefill.adapter = text.adapter;
    prefill.max_tokens = 0;
    engine::Request* const request = &prefill;
    if (!Charge(*exchange, {&request, 1}, admitted)) return;
    prefill.tenant = slot.tenant = text.tenant;  // the text's part of the prefix cache
    KeepTicket(admitted.ticket, slot);
    auto listener =
        std::make_shared<SlotPrefill>(*served_.engine, std::move(slot), std::move(admitted.ticket));
    const auto id = served_.engine->Submit(std::move(prefill), listener);
    if (!id.ok()) return listener->OnEnd("", id.error());
    exchange->OnDisconnect([engine = served_.engine, id = *id] { engine->Cancel(id); });
}

void Api::ChangeSlot(const std::shared_ptr<Exchange>& exchange) {
    Admitted admitted;
    if (exchange->gone() || !Admit(*exchange, admitted)) return;
    const HttpRequest& request = exchange->request();
    const std::string owner = OwnerOf(request);
    Json body = Json::object();
    SlotCommand ask;
    std::optional<ApiError> error;
    if (served_.slot_folder.empty()) {
        error = {
            501,
            "This server does not support slots action. Start it with `--slot-save-path FOLDER`",
            "", "not_supported"};
    }
    if (!error && !request.body.empty()) error = ParseBody(request.body, body);
    if (!error) {
        error = ReadSlotCommand(*SlotOfPath(request.path), QueryValue(request.query, "action"),
                                body, slots_->size(), ask);
    }
    exchange->Release();
    if (error) {
        admitted.Settle();
        return Refuse(*exchange, *error, std::move(admitted.headers));
    }
    if (ask.action == SlotCommand::Action::kErase) {
        admitted.Settle();
        const Json erased{{"id_slot", ask.id}, {"n_erased", slots_->Erase(owner, ask.id)}};
        return exchange->Send(200, kJsonHeaders, Dump(erased));
    }
    engine::SlotRequest slot;
    slot.file = owner.empty() ? ask.filename : owner + "/" + ask.filename;
    slot.restores = ask.action == SlotCommand::Action::kRestore;
    slot.tenant = admitted.TenantWith(ask.salt);
    slot.key = owner;
    slot.gone = [exchange] { return exchange->gone(); };
    slot.done = [this, exchange, ask, owner,
                 tenant = slot.tenant](const Result<engine::SlotRequest::Done>& done) {
        if (!done.ok()) {
            const std::string& folder = served_.slot_folder;
            return Refuse(*exchange,
                          SlotError(done.error(), owner.empty() ? folder : folder + "/" + owner));
        }
        if (ask.action == SlotCommand::Action::kRestore) {
            slots_->Put(owner, ask.id, {done->tokens, done->adapter, tenant});
        }
        exchange->Send(200, kJsonHeaders, Dump(SlotAnswer(ask, *done)));
    };
    if (!slot.restores) {
        return SaveSlot(exchange, slots_->TextOf(owner, ask.id), std::move(slot),
                        std::move(admitted));
    }
    if (admitted.ticket != nullptr) admitted.ticket->Settle(0);
    KeepTicket(std::move(admitted.ticket), slot);
    served_.engine->Submit(std::move(slot));
}

}  // namespace weft::serve
