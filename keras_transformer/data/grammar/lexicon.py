"""The words of the built-in phrasebook: Portuguese and English tables, with what no rule derives.

Rows are `Portuguese = English`, nouns led by their gender (`m`, `f`); `inflection.py` derives regular forms.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: lemma in both languages, gender (`m`, `f`), semantic class, and whether it has no plural."""

    pt: str
    en: str
    gender: str
    kind: str
    mass: bool


class Verb(NamedTuple):
    """A verb: lemma in both languages and the preposition that its Portuguese object takes (or none)."""

    pt: str
    en: str
    preposition: str = ""


class Adjective(NamedTuple):
    """An adjective: masculine singular in Portuguese, base form in English."""

    pt: str
    en: str


def _rows(table: str) -> list[tuple[str, str]]:
    """Split `a = b, c = d` into its pairs."""
    pairs = (row.split(" = ") for row in " ".join(table.split()).split(", "))
    return [(left, right) for left, right in pairs]


MASS_KINDS = ("meal", "food", "drink", "language", "science", "sport", "music")

_NOUNS = {
    "meal": """m arroz = rice, f carne = meat, m peixe = fish, m frango = chicken, f sopa = soup, m macarrão = pasta,
        f salada = salad""",
    "food": "m pão = bread, m queijo = cheese, m chocolate = chocolate",
    "drink": """f água = water, m leite = milk, m café = coffee, m chá = tea, m suco = juice, m vinho = wine,
        f cerveja = beer""",
    "fruit": """f maçã = apple, f banana = banana, f laranja = orange, f pera = pear, m tomate = tomato,
        f batata = potato, f cebola = onion, f cenoura = carrot, m morango = strawberry""",
    "snack": "m ovo = egg, m sanduíche = sandwich, m bolo = cake, f torta = pie, m biscoito = cookie, f pizza = pizza",
    "text": """m livro = book, f carta = letter, m poema = poem, m romance = novel, f mensagem = message,
        m artigo = article, m relatório = report, f história = story, m conto = tale""",
    "press": "m jornal = newspaper, f revista = magazine, m dicionário = dictionary, m mapa = map",
    "show": "m filme = movie, f corrida = race, m concerto = concert, f novela = soap opera, m desfile = parade",
    "song": "f canção = song, m hino = anthem, f balada = ballad",
    "music": "f música = music",
    "language": """m português = Portuguese, m inglês = English, m francês = French, m espanhol = Spanish,
        m alemão = German, m italiano = Italian, m japonês = Japanese, m russo = Russian""",
    "science": """f matemática = mathematics, f física = physics, f química = chemistry, f biologia = biology,
        f geografia = geography""",
    "sport": "m futebol = soccer, m tênis = tennis, m xadrez = chess, m basquete = basketball, m vôlei = volleyball",
    "instrument": "m violão = guitar, m piano = piano, f flauta = flute, m violino = violin, m tambor = drum",
    "clothes": """f camisa = shirt, m vestido = dress, m casaco = coat, m chapéu = hat, m sapato = shoe, f meia = sock,
        f saia = skirt, f luva = glove, f gravata = tie, m cinto = belt, f jaqueta = jacket""",
    "dish": """m prato = plate, m copo = glass, f xícara = cup, f panela = pot, f faca = knife, m garfo = fork,
        f colher = spoon, f garrafa = bottle""",
    "object": """m guarda-chuva = umbrella, f mala = suitcase, f bolsa = bag, f chave = key, f carteira = wallet,
        f caneta = pen, m lápis = pencil, m caderno = notebook, m presente = gift, m brinquedo = toy, f bola = ball,
        f boneca = doll, m espelho = mirror, f vela = candle, f flor = flower, f caixa = box, f foto = photo,
        m envelope = envelope, m anel = ring, m colar = necklace, m quadro = painting""",
    "device": """m relógio = watch, m telefone = phone, m computador = computer, f câmera = camera, m rádio = radio""",
    "appliance": "f geladeira = refrigerator, f impressora = printer, m fogão = stove, f televisão = television",
    "vehicle": "m carro = car, m caminhão = truck, f moto = motorcycle",
    "transport": "f bicicleta = bicycle, m barco = boat",
    "transit": "m ônibus = bus, m trem = train, m avião = airplane, m táxi = taxi",
    "furniture": "f mesa = table, f cadeira = chair, f cama = bed, m sofá = sofa, m armário = closet",
    "opening": "f porta = door, f janela = window, f gaveta = drawer, m portão = gate",
    "room": "f cozinha = kitchen, m quarto = bedroom, m banheiro = bathroom, f sala = living room, f garagem = garage",
    "building": """f casa = house, f escola = school, m hospital = hospital, m hotel = hotel,
        f igreja = church, m castelo = castle, m museu = museum, f biblioteca = library, f loja = store,
        f fábrica = factory, f ponte = bridge, f torre = tower""",
    "workplace": """m restaurante = restaurant, m banco = bank, f farmácia = pharmacy, f padaria = bakery,
        m teatro = theater, f universidade = university, m escritório = office, f fazenda = farm,
        m aeroporto = airport, f estação = station""",
    "outdoors": """m parque = park, m jardim = garden, f cidade = city, f floresta = forest,
        f ilha = island, m mercado = market, f praia = beach, f praça = square, m zoológico = zoo,
        f montanha = mountain""",
    "water": "m rio = river, m lago = lake, f piscina = pool, m mar = sea",
    "route": "f rua = street, m campo = field",
    "animal": """m gato = cat, m cachorro = dog, m cavalo = horse, f vaca = cow, f ovelha = sheep,
        f galinha = hen, m pato = duck, m coelho = rabbit, m papagaio = parrot, f tartaruga = turtle""",
    "beast": """m pássaro = bird, m leão = lion, m elefante = elephant, m macaco = monkey, m rato = mouse,
        m lobo = wolf, m urso = bear, f borboleta = butterfly, f abelha = bee""",
    "person": """m professor = teacher, f professora = teacher, m aluno = student, f aluna = student,
        m médico = doctor, f médica = doctor, f enfermeira = nurse, m advogado = lawyer, f advogada = lawyer,
        m engenheiro = engineer, f engenheira = engineer, m cozinheiro = cook, f cozinheira = cook,
        m vizinho = neighbor, f vizinha = neighbor, m menino = boy, f menina = girl, m homem = man, f mulher = woman,
        f criança = child, m artista = artist, m jornalista = journalist, f cantora = singer, m escritor = writer,
        f escritora = writer, m motorista = driver, m gerente = manager, f turista = tourist, m ator = actor,
        f atriz = actress, m policial = police officer, m padeiro = baker, m jardineiro = gardener""",
    "friend": "m amigo = friend, f amiga = friend, m colega = colleague, f chefe = boss",
    "relative": """m pai = father, f mãe = mother, m irmão = brother, f irmã = sister, m filho = son,
        f filha = daughter,
        m avô = grandfather, f avó = grandmother, m tio = uncle, f tia = aunt, m primo = cousin, f prima = cousin,
        m marido = husband, f esposa = wife, m neto = grandson, f neta = granddaughter, m sobrinho = nephew,
        f sobrinha = niece""",
    "event": """f festa = party, f reunião = meeting, f aula = class, f prova = exam, m casamento = wedding,
        f viagem = trip, f entrevista = interview, f exposição = exhibition""",
}

NOUNS = {
    row[0][2:]: Noun(row[0][2:], row[1], row[0][0], kind, kind in MASS_KINDS)
    for kind, table in _NOUNS.items()
    for row in _rows(table)
}

_ADJECTIVES = """vermelho = red, azul = blue, verde = green, amarelo = yellow, branco = white, preto = black,
    marrom = brown, roxo = purple, grande = big, pequeno = small, novo = new, velho = old, caro = expensive,
    barato = cheap, bonito = beautiful, feio = ugly, pesado = heavy, leve = light, limpo = clean, sujo = dirty,
    moderno = modern, longo = long, curto = short, alto = tall, rápido = fast,
    lento = slow, confortável = comfortable, elegante = elegant, interessante = interesting, famoso = famous,
    difícil = difficult, fácil = easy, importante = important, triste = sad, engraçado = funny, estranho = strange,
    quente = hot, frio = cold, doce = sweet, fresco = fresh, delicioso = delicious, salgado = salty, amargo = bitter,
    maduro = ripe, inteligente = intelligent, simpático = friendly, jovem = young, rico = rich,
    feliz = happy, cansado = tired, doente = sick, ocupado = busy, preocupado = worried, nervoso = nervous,
    honesto = honest, tímido = shy, gentil = kind, paciente = patient, forte = strong, corajoso = brave,
    preguiçoso = lazy, calmo = calm, alegre = cheerful, educado = polite, tranquilo = quiet, vazio = empty,
    perigoso = dangerous, largo = wide, estreito = narrow, aberto = open, fechado = closed, quebrado = broken,
    molhado = wet, seco = dry, útil = useful, assustado = frightened, perdido = lost, manso = tame, selvagem = wild,
    atrasado = late, pronto = ready, cheio = full, popular = popular, chato = boring"""

ADJECTIVES = {pt: Adjective(pt, en) for pt, en in _rows(_ADJECTIVES)}


def adjectives(words: str) -> tuple[Adjective, ...]:
    """The adjectives of these Portuguese words."""
    return tuple(ADJECTIVES[word] for word in words.split())


_COLORS = "vermelho azul verde amarelo branco preto"
_WARES = "novo velho caro barato bonito"

# What a noun of a class can lastingly be (with "ser", or before and after the noun).
QUALITIES = {
    kind: adjectives(words)
    for kind, words in {
        "meal": "delicioso fresco caro barato salgado",
        "food": "delicioso fresco caro barato",
        "drink": "quente frio delicioso amargo caro barato",
        "fruit": "maduro doce fresco grande pequeno barato",
        "snack": "delicioso pequeno grande quente frio",
        "text": "longo curto interessante famoso fácil difícil triste engraçado estranho importante",
        "press": "novo velho interessante útil caro",
        "show": "longo interessante famoso triste engraçado popular chato",
        "song": "triste alegre famoso novo velho bonito popular",
        "music": "triste alegre moderno bonito popular",
        "language": "fácil difícil bonito útil",
        "science": "fácil difícil interessante útil importante",
        "sport": "popular difícil interessante",
        "instrument": "novo velho caro barato pequeno bonito",
        "clothes": f"{_COLORS} {_WARES} elegante feio roxo marrom",
        "dish": f"{_WARES} limpo sujo pequeno grande branco azul",
        "object": f"{_WARES} pequeno grande vermelho azul verde branco preto",
        "device": f"{_WARES} moderno pequeno pesado leve preto branco",
        "appliance": f"{_WARES} moderno pesado grande pequeno",
        "vehicle": f"{_COLORS} {_WARES} rápido grande moderno",
        "transport": f"{_WARES} rápido lento grande pequeno branco azul moderno",
        "transit": "rápido lento grande pequeno velho novo moderno confortável",
        "furniture": f"{_WARES} confortável pesado grande pequeno marrom",
        "opening": "grande pequeno estreito largo pesado branco verde",
        "room": "grande pequeno limpo sujo confortável moderno",
        "building": "grande pequeno moderno famoso bonito velho novo alto",
        "workplace": "grande pequeno moderno famoso novo velho",
        "outdoors": "grande pequeno bonito tranquilo famoso perigoso",
        "water": "grande pequeno bonito tranquilo perigoso frio",
        "route": "longo estreito largo bonito perigoso tranquilo",
        "animal": "grande pequeno branco preto manso selvagem velho jovem bonito preguiçoso",
        "beast": "grande pequeno bonito jovem forte perigoso selvagem",
        "person": "inteligente simpático jovem alto rico famoso honesto tímido gentil paciente corajoso educado",
        "friend": "inteligente simpático calmo honesto tímido gentil paciente corajoso rico",
        "relative": "inteligente simpático calmo alto honesto tímido gentil paciente corajoso forte",
        "event": "longo curto importante interessante difícil",
    }.items()
}

# What a noun of a class can be for a while (with "estar").
STATES = {
    kind: adjectives(words)
    for kind, words in {
        "meal": "quente frio pronto delicioso salgado",
        "food": "delicioso fresco",
        "drink": "quente frio delicioso pronto",
        "fruit": "maduro fresco caro",
        "snack": "quente frio pronto delicioso",
        "clothes": "limpo sujo molhado seco pronto",
        "dish": "limpo sujo quebrado vazio cheio seco",
        "object": "sujo molhado seco quebrado perdido pronto",
        "device": "quebrado sujo molhado perdido",
        "appliance": "quebrado sujo limpo",
        "vehicle": "limpo sujo quebrado vazio cheio",
        "transport": "limpo sujo quebrado molhado",
        "transit": "limpo sujo quebrado vazio cheio atrasado",
        "furniture": "limpo sujo quebrado molhado seco",
        "opening": "aberto fechado quebrado",
        "room": "limpo sujo vazio cheio fechado frio quente",
        "building": "aberto fechado vazio cheio",
        "workplace": "aberto fechado vazio cheio",
        "animal": "cansado doente assustado molhado perdido calmo",
        "person": "cansado doente ocupado preocupado nervoso feliz triste atrasado pronto calmo perdido assustado",
        "friend": "cansado doente ocupado preocupado nervoso feliz triste atrasado pronto",
        "relative": "cansado doente ocupado preocupado nervoso feliz triste atrasado pronto",
    }.items()
}

# Transitive verbs: `verb = English = classes of objects = uses`, a use being one letter: h habit ("todos os dias"),
# g what one is just doing, i what one asks for, p what the passive says well, b what takes longer
# than a day, k what one says of people in general ("she speaks French"),
# l what one may do "next year", m what nobody plans.
EVENTS = """
    comer = eat = meal food = hgik, comer = eat = fruit snack = hgi,
    beber = drink = drink = hgik,
    preparar = prepare = meal snack = hgip,
    comprar = buy = meal food drink fruit snack press = hg,
    comprar = buy = text clothes dish object device vehicle appliance transport furniture instrument = l,
    vender = sell = clothes object furniture vehicle transport appliance instrument = pl,
    vender = sell = fruit = gip, vender = sell = press = hgip,
    lavar = wash = clothes dish fruit vehicle = hgip,
    limpar = clean = room furniture dish appliance = hgip,
    procurar = look for = object press clothes animal device = gi,
    encontrar = find = object press clothes animal dish text = p,
    perder = lose = object clothes device = m,
    esquecer = forget = object clothes device = m,
    trazer = bring = object dish press meal food drink snack = hip,
    escolher = choose = clothes object furniture instrument song show text = p,
    quebrar = break = dish instrument opening furniture = pm,
    consertar = fix = device vehicle furniture opening appliance transport transit = gip,
    pintar = paint = furniture opening room building = gipl,
    abrir = open = opening = hgip,
    fechar = close = opening = hgip,
    usar = use = device dish vehicle transport = hi,
    pegar = take = transit = hgi,
    esperar = wait for = transit friend relative = g,
    dirigir = drive = vehicle = hg,
    ler = read = text press = hgip,
    escrever = write = text song = gipl,
    ouvir = listen to = song music = hg,
    assistir = watch = show = hg = a,
    traduzir = translate = text = gipl,
    corrigir = correct = text = gip,
    tocar = play = instrument = hgik, tocar = play = song = gi,
    cantar = sing = song = hgi,
    jogar = play = sport = hgik,
    estudar = study = language science = hgikl,
    aprender = learn = language = gbl,
    ensinar = teach = language science = hgkl,
    falar = speak = language = bk,
    visitar = visit = building outdoors water = gpl, visitar = visit = relative friend = hgil,
    ver = see = beast show building water route person = p,
    ajudar = help = person friend relative = hgi,
    convidar = invite = friend person relative = ip,
    abraçar = hug = friend relative animal = hgi,
    alimentar = feed = animal = hgip,
    desenhar = draw = beast animal route building = g,
    construir = build = building = gpbl,
    cortar = cut = fruit food = gi,
    pedir = order = snack drink meal = h,
    organizar = organize = event = gpbl,
    fotografar = photograph = beast animal building route water = g,
    enviar = send = text = ip,
    esconder = hide = object press = gp,
    levar = take = object clothes press = hi
"""


class Event(NamedTuple):
    """A transitive verb with the classes of objects that it takes and the constructions that suit it."""

    verb: Verb
    kinds: tuple[str, ...]
    uses: str


def _event(row: str) -> Event:
    pt, en, kinds, uses, preposition = (*(cell.strip() for cell in row.split("=")), "")[:5]
    return Event(Verb(pt, en, preposition), tuple(kinds.split()), uses)


TRANSITIVES = tuple(_event(row) for row in " ".join(EVENTS.split()).split(","))

NAMES = "m Pedro, m João, m Carlos, m Paulo, m Miguel, m Rui, f Ana, f Maria, f Sofia, f Clara, f Helena, f Júlia"

CITIES = _rows("""Lisboa = Lisbon, São Paulo = São Paulo, Londres = London, Paris = Paris, Roma = Rome,
    Nova York = New York, Salvador = Salvador, Recife = Recife, Madri = Madrid, Berlim = Berlin, Tóquio = Tokyo""")
COUNTRIES = _rows("""o Brasil = Brazil, a França = France, a Itália = Italy, a Espanha = Spain, o Japão = Japan,
    a Alemanha = Germany, o Canadá = Canada, o México = Mexico, a China = China, Portugal = Portugal""")
WEEKDAYS = _rows("""segunda-feira = Monday, terça-feira = Tuesday, quarta-feira = Wednesday, quinta-feira = Thursday,
    sexta-feira = Friday, sábado = Saturday, domingo = Sunday""")
MONTHS = _rows("""janeiro = January, fevereiro = February, março = March, abril = April, maio = May, junho = June,
    julho = July, agosto = August, setembro = September, outubro = October, novembro = November, dezembro = December""")
