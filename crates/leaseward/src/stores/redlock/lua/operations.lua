-- The operations, by their letters. Each takes all its fields and keys first: whatever fails then, the next one finds its
-- own.
local operations = {}

-- The fields of an ask, behind its letter.
local function next_ask()
  local it = { token = next_field(), ttl = tonumber(next_field()), first = tonumber(next_field()), last = tonumber(next_field()) }
  next_field()
  it.value, it.mode, it.delay = next_field(), next_field(), tonumber(next_field())
  return it
end

-- A token ttl_ms first last forget_ms value mode delay_ms
function operations.A()
  local it, key = next_ask(), next_key()
  local room = room(key)
  local verdict, why = admits(room, it)
  if verdict == 'gone' then
    answer(@GONE, why)
  elseif verdict == 'busy' then
    busy(room)
  elseif verdict == 'low' then
    answer(@LOW, bar(room))
  elseif verdict == 'mine' then
    local hold = lengthen(room, it.token, it.ttl)
    answer(@GRANTED, hold.first, hold.last - hold.first + 1)
  else
    grant(room, it)
    answer(@GRANTED, it.first, it.last - it.first + 1)
  end
end

-- h, as A: puts a lease that a majority has to where it is not, if nobody else is there. Nothing is promised by that, so
-- its ballot may be an old one; what was granted here since is remembered all the same.
function operations.h()
  local it, key = next_ask(), next_key()
  local room = room(key)
  local verdict = admits(room, it)
  if verdict == 'yes' or verdict == 'low' then
    grant(room, it)
  end
  answer(@DONE)
end

-- Why a token that holds nothing here does not.
local function not_yours(room, token)
  local ballot = room.ballot
  -- Readers are no obstacle to a reader.
  local is_over = not room.owner and not room.stranger
  if is_over and #room.readers == 0 and (not ballot or ballot.token == token) then
    -- A ballot is remembered for the allowance after its lease's time is over: before that, the lease was given back.
    local is_early = ballot and call('PTTL', room.b) > @ALLOWANCE_MS
    return answer(@NOT_YOURS, is_early and @FREE or @EXPIRED)
  end
  answer(@NOT_YOURS, is_over and @FREE or @NOT_OURS)
end

-- n token ttl_ms
function operations.n()
  local token, ttl, key = next_field(), tonumber(next_field()), next_key()
  local room = room(key)
  local verdict, why = admits(room, { token = token, first = 0 })
  if verdict == 'mine' then
    lengthen(room, token, ttl)
    answer(@RENEWED)
  elseif verdict == 'gone' then
    answer(@NOT_YOURS, why)
  else
    not_yours(room, token)
  end
end

-- r token keep_ms: compares the token and nothing else.
function operations.r()
  local token, keep, key = next_field(), tonumber(next_field()), next_key()
  local room = room(key)
  local reader, at = reader_of(room, token)
  if reader and reader.letter ~= 'k' and reader.till > now then
    if keep > 0 then
      reader.letter, reader.till = 'k', now + keep * 1000
      call('HSET', room.r, token, write(reader, true))
    else
      table.remove(room.readers, at)
      call('HDEL', room.r, token)
    end
    hold_for_readers(room)
    return answer(@RELEASED)
  end
  local hold = room.ballot
  if reader or room.owner ~= token or (hold and hold.letter == 'k') then
    return not_yours(room, token)
  end
  if keep > 0 then
    call('PEXPIRE', key, keep)
  else
    call('DEL', key)
  end
  if hold then
    hold.letter, hold.delay, hold.till = keep > 0 and 'k' or 's', 0, 0
    remember(room, hold, math.max(keep, hold.ttl))
  end
  answer(@RELEASED)
end

-- u token first: takes back what one attempt was granted, and nothing else. An attempt is known by its ballot.
function operations.u()
  local token, first, key = next_field(), tonumber(next_field()), next_key()
  local room = room(key)
  local reader, at = reader_of(room, token)
  local hold = reader or (room.owner == token and room.ballot)
  if hold and hold.first == first then
    if reader then
      table.remove(room.readers, at)
      call('HDEL', room.r, token)
      hold_for_readers(room)
    else
      call('DEL', key)
      hold.letter, hold.delay, hold.till = 's', 0, 0
      remember(room, hold)
    end
  end
  answer(@DONE)
end

local function show(room)
  local shown = {}
  local function add(hold, mode, left)
    shown[#shown + 1] = { hold.token, mode, hold.letter, hold.value, text(hold.first), text(hold.last), tostring(hold.ttl),
      tostring(hold.delay), tostring(left) }
  end
  if room.stranger then
    local left = call('PTTL', room.key)
    shown[1] = { '!' .. room.stranger, 'x', 's', '', text(0), text(0), '0', '0', tostring(left) }
  elseif room.owner then
    add(room.ballot, 'x', call('PTTL', room.key))
  end
  for _, reader in ipairs(room.readers) do
    if reader.till > now then
      add(reader, 's', ms_until(reader.till))
    end
  end
  answer(#shown)
  for _, hold in ipairs(shown) do
    answer(hold)
  end
end

-- l: what there is.
function operations.l()
  show(room(next_key()))
end

-- x when: breaks all leases on a name, now or by refusing to renew them; answers what was there before.
function operations.x()
  local when, key = next_field(), next_key()
  local room = room(key)
  if room.stranger and when ~= 'now' then
    return answer(@BUSY)
  end
  answer(@DONE)
  show(room)
  if when == 'now' then
    call('DEL', room.key, room.r)
    if room.ballot then
      room.ballot.letter, room.ballot.delay, room.ballot.till = 's', 0, 0
      remember(room, room.ballot)
    end
    return
  end
  for _, reader in ipairs(room.readers) do
    if reader.letter ~= 'k' then
      reader.letter = 'b'
      call('HSET', room.r, reader.token, write(reader, true))
    end
  end
  local hold = room.owner and room.ballot
  if hold and hold.letter ~= 'k' then
    local left = call('PTTL', room.key)
    hold.letter, hold.till = 'b', now + (left + hold.delay) * 1000
    remember(room, hold, math.max(left, hold.ttl))
  end
end

while ARGV[at] do
  local letter, before = next_field(), n
  local ok, failure = pcall(operations[letter])
  if not ok then
    for i = before + 1, n do
      out[i] = nil
    end
    n = before
    answer(@FAILED, type(failure) == 'table' and failure.err or tostring(failure))
  end
end
return out
