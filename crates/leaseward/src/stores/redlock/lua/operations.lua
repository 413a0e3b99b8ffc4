-- The operations that run all the time, for exclusive leases about which there is nothing unusual. What is done here must
-- be what `slow.lua` would have done.

local function slow(turn)
  local lib = turn.lib
  if not lib then
    lib = turn.library(turn)
    turn.lib = lib
  end
  return lib
end

-- a token ttl_ms first last value: an exclusive lease without delay.
-- A token ttl_ms first last value mode delay_ms: anything else.
local function ask(turn, letter)
  local call, at, key = redis.call, turn.at, turn.next_key(turn)
  local token, ttl, first, last, value = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  turn.at = at + 5
  local mode, delay = 'x', 0
  if letter == 65 then
    mode, delay = ARGV[at + 5], tonumber(ARGV[at + 6])
    turn.at = at + 7
  else
    local b = 'leaseward:b:' .. key
    local values = call('MGET', key, b)
    local ballot = values[2]
    if not values[1] and (not ballot or string.byte(ballot, 17) == 115) then
      local bar = ballot and math.max(tonumber(string.sub(ballot, 1, 16)), turn.forgot) or turn.floor
      if tonumber(first) <= bar then
        return turn.answer(turn, @LOW, bar)
      end
      -- Whatever else may be there, of whatever kind, is not overwritten.
      if call('SET', key, token, 'NX', 'PX', ttl) then
        call('SET', b, last .. 's' .. first .. ' ' .. ttl .. ' 0000000000000000 0 ' .. turn.now_text .. ' ' .. token .. '\n'
          .. value, 'PX', turn.memory(turn, tonumber(last), ttl))
        local out, n = turn.out, turn.n
        out[n + 1] = @PLAIN
        turn.n = n + 1
        return
      end
    end
  end
  turn.slow(turn).ask({
    token = token, ttl = tonumber(ttl), first = tonumber(first), last = tonumber(last), value = value, mode = mode,
    delay = delay,
  }, key)
end

-- n token ttl_ms
local function renew(turn)
  local call, at, key = redis.call, turn.at, turn.next_key(turn)
  local token, ttl = ARGV[at], ARGV[at + 1]
  turn.at = at + 2
  local b = 'leaseward:b:' .. key
  local values = call('MGET', key, b)
  local ballot = values[2]
  if values[1] == token and ballot and string.byte(ballot, 17) == 115 and string.sub(ballot, 35, 35 + #ttl) == ttl .. ' ' then
    call('PEXPIRE', key, ttl)
    call('PEXPIRE', b, turn.memory(turn, tonumber(string.sub(ballot, 1, 16)), ttl))
    return turn.answer(turn, @RENEWED)
  end
  turn.slow(turn).renew(token, tonumber(ttl), key)
end

-- r token keep_ms: compares the token and nothing else.
local function release(turn)
  local call, at, key = redis.call, turn.at, turn.next_key(turn)
  local token, keep = ARGV[at], ARGV[at + 1]
  turn.at = at + 2
  if keep == '0' then
    local values = call('MGET', key, 'leaseward:b:' .. key)
    if values[1] == token and values[2] and string.byte(values[2], 17) == 115 then
      call('DEL', key)
      local out, n = turn.out, turn.n
      out[n + 1] = @RELEASED
      turn.n = n + 1
      return
    end
  end
  turn.slow(turn).release(token, tonumber(keep), key)
end
